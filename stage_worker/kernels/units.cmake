# One instruction set a translation unit: the suffix of the file's name says which, the machine chooses at run time. Units of other
# processors are left out. For every build that compiles this directory's sources.
function(kernel_units suffix processors)
  file(GLOB units CONFIGURE_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/*/*_${suffix}.cc)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(${processors})$")
    set_source_files_properties(${units} PROPERTIES COMPILE_OPTIONS "${ARGN}")
  else()
    set_source_files_properties(${units} PROPERTIES HEADER_FILE_ONLY ON)
  endif()
endfunction()
set(x86 "x86_64|AMD64|amd64")
set(arm "aarch64|arm64")
# With the sanitizers at -O3 a unit of templates compiles for minutes; and looks at every sum of indices are a third of it at -O2. The scalar
# kernels, which have them, are called with the same indices.
set(speed -O3)
if(STAGECOACH_SANITIZE)
  set(speed -O2 -fno-sanitize=signed-integer-overflow)
endif()
set(avx2_flags -mavx2 -mfma -mf16c ${speed})
set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
kernel_units(avx2 "${x86}" ${avx2_flags})
kernel_units(avxvnni "${x86}" ${avx2_flags} -mavxvnni)
kernel_units(avx512 "${x86}" ${avx512_flags})
kernel_units(avx512vnni "${x86}" ${avx512_flags} -mavx512vnni)
kernel_units(avx512bf16 "${x86}" ${avx512_flags} -mavx512bf16)
kernel_units(neon "${arm}" -march=armv8.2-a+dotprod ${speed})
kernel_units(neoni8mm "${arm}" -march=armv8.2-a+dotprod+i8mm ${speed})
# g++ moves the additions of an inner loop behind all of its products, and would have to spill these.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set_property(SOURCE ${CMAKE_CURRENT_LIST_DIR}/avx2/integer_avx2.cc ${CMAKE_CURRENT_LIST_DIR}/avx512/integer_avx512.cc
               APPEND PROPERTY COMPILE_OPTIONS -fno-tree-ter -fno-tree-reassoc)
endif()
# Functions with that many looks at memory call one function for them: half of these units' time, and nothing where the time is spent.
if(STAGECOACH_SANITIZE MATCHES address)
  set_property(SOURCE ${CMAKE_CURRENT_LIST_DIR}/avx512/integer_avx512.cc ${CMAKE_CURRENT_LIST_DIR}/avx512/integer_avx512vnni.cc
               APPEND PROPERTY COMPILE_OPTIONS -mllvm -asan-instrumentation-with-call-threshold=100)
endif()
