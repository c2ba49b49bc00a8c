# What `cmake --install` puts where, all of it relative to the prefix: the two programs, which find each other by lying beside each other,
# their manual pages, completion for three shells, the documents, and the files of this folder that show how to start them elsewhere.

# Manual pages and completion are what the programs say of themselves. A program for another kind of machine needs an emulator for that
# (CMAKE_CROSSCOMPILING_EMULATOR); without one they are left out.
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
  set(documents ${PROJECT_BINARY_DIR}/documents)
  add_custom_command(OUTPUT ${documents}/made
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${documents}
    COMMAND coordinator manual -o ${documents}/man1
    COMMAND stage_worker --manual > ${documents}/man1/stage_worker.1
    COMMAND coordinator completion bash > ${documents}/coordinator.bash
    COMMAND coordinator completion zsh > ${documents}/_coordinator
    COMMAND coordinator completion fish > ${documents}/coordinator.fish
    COMMAND ${CMAKE_COMMAND} -E touch ${documents}/made
    DEPENDS coordinator stage_worker
    COMMENT "Writing manual pages and shell completion"
    VERBATIM)
  add_custom_target(documents ALL DEPENDS ${documents}/made)
  install(DIRECTORY ${documents}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${documents}/coordinator.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME coordinator)
  install(FILES ${documents}/_coordinator DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${documents}/coordinator.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# Libraries outside of the system's own folders are found where they were linked from.
set_target_properties(coordinator stage_worker PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS coordinator stage_worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES README.md LICENSE TYPE DOC)
install(DIRECTORY deploy/docs DESTINATION ${CMAKE_INSTALL_DOCDIR}/deploy FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(FILES LICENSE TYPE DOC RENAME copyright) # where a Debian looks for it
install(DIRECTORY deploy/hostfiles deploy/slurm deploy/modules deploy/spack deploy/k8s deploy/containers deploy/systemd deploy/nginx deploy/monitoring DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(FILES deploy/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
