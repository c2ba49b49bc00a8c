# What `cmake --build build --target package` makes of the installed files: a package of the Debian that it is built on. It depends on
# what the programs are linked with, in the versions there (dpkg-shlibdeps, of dpkg-dev, finds them), and on the launcher.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stagecoach)
set(CPACK_PACKAGE_CONTACT "Stagecoach <stagecoach@localhost>" CACHE STRING "Whom the package names as its maintainer")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Each MPI rank is a pipeline stage that owns some of the layers and their part of a
paged KV cache. A coordinator splits prompts into chunks and micro-batches and
keeps all stages busy: at the command line, as an HTTP server with OpenAI's API,
or inside a batch system. Models are GGUF files.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
include(CPack)
