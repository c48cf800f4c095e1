# ctest reads this before it runs anything, once for each program of tests.
# Every suite that the program lists becomes an entry: a process for each TEST
# spends most of its time on loading libraries.  A failure names its TEST.
if(NOT EXISTS ${program})
  add_test(${prefix}.NOT_BUILT ${program})
  return()
endif()
execute_process(COMMAND ${program} --gtest_list_tests OUTPUT_VARIABLE list
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[A-Za-z][^ \n]*\\." suites "${list}")
foreach(suite ${suites})
  string(REGEX REPLACE "^\n|\\.$" "" suite "${suite}")
  add_test(${prefix}.${suite} ${program} --gtest_filter=${suite}.*)
  # Of half a core each: what computes counts for two, what waits for one.
  set_tests_properties(${prefix}.${suite} PROPERTIES ${properties} PROCESSORS 2)
endforeach()
