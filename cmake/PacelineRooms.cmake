# One static library, one namespace and one test program per room (src/<room>).
#   paceline_room(<room> ROOMS <rooms it may use> LIBS <libraries> CUDA_LIBS <libraries>)
# *_test.cpp go to paceline_<room>_tests, everything else to paceline_<room>. *.cu and *_cuda.cpp are
# compiled where nvcc is found, *_cuda_test.cpp then go to paceline_<room>_gpu_tests (label gpu).
# A room without sources yet is an interface library, so that rooms can be named before they are
# filled.

add_library(paceline_flags INTERFACE)
target_include_directories(paceline_flags INTERFACE "${PROJECT_SOURCE_DIR}/src")
target_compile_features(paceline_flags INTERFACE cxx_std_20)
target_compile_options(paceline_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wpedantic>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${PACELINE_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CXX>:-march=${PACELINE_CPU_ARCH} -fopenmp-simd>
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -lineinfo -Xcompiler=-Wall,-Wextra>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PACELINE_WERROR}>>:-Werror=all-warnings>)
if(PACELINE_SANITIZE)
  target_compile_options(paceline_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PACELINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  target_link_options(paceline_flags INTERFACE -fsanitize=${PACELINE_SANITIZE})
endif()
# Where no time is spent at run time, none should be spent on optimising: sources that parse, print
# or test would take most of a build otherwise.
set(PACELINE_COLD_OPTIONS $<$<CONFIG:Release>:-O1> $<$<CONFIG:Debug>:-O0>)
set(PACELINE_COLD_SOURCES
  core/config.cpp core/config_text.cpp core/log.cpp features/schema.cpp data/movielens.cpp
  data/column_guess.cpp data/file_columns.cpp data/score_writer.cpp data/suggest_config.cpp
  checkpoint/checkpoint.cpp checkpoint/json_text.cpp checkpoint/layout.cpp checkpoint/manifest.cpp
  checkpoint/publication.cpp checkpoint/retention.cpp checkpoint/safetensors.cpp
  train/train_config.cpp train/run_state.cpp train/run_directory.cpp train/loaded_run.cpp)
list(TRANSFORM PACELINE_COLD_SOURCES PREPEND "${PROJECT_SOURCE_DIR}/src/")
set_source_files_properties(${PACELINE_COLD_SOURCES} PROPERTIES COMPILE_OPTIONS "${PACELINE_COLD_OPTIONS}")

find_package(Threads REQUIRED)
target_link_libraries(paceline_flags INTERFACE Threads::Threads)

function(paceline_room room)
  cmake_parse_arguments(R "" "" "ROOMS;LIBS;CUDA_LIBS" ${ARGN})
  set(dir "${PROJECT_SOURCE_DIR}/src/${room}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${dir}/*.cpp")
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${dir}/*.hpp")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  set(gpu_tests ${tests})
  list(FILTER gpu_tests INCLUDE REGEX "_cuda_test\\.cpp$")
  list(FILTER tests EXCLUDE REGEX "_cuda_test\\.cpp$")
  if(PACELINE_CUDA_ENABLED)
    file(GLOB_RECURSE cuda CONFIGURE_DEPENDS "${dir}/*.cu")
    list(APPEND sources ${cuda})
    list(APPEND R_LIBS ${R_CUDA_LIBS})
  else()
    list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")
    set(gpu_tests "")
  endif()
  set(rooms ${R_ROOMS})
  list(TRANSFORM rooms PREPEND paceline_)
  if(sources)
    add_library(paceline_${room} STATIC ${sources})
    target_sources(paceline_${room} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/src" FILES ${headers})
    target_link_libraries(paceline_${room} PUBLIC paceline_flags ${rooms} ${R_LIBS})
    set_target_properties(paceline_${room} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  else()
    add_library(paceline_${room} INTERFACE)
    target_link_libraries(paceline_${room} INTERFACE paceline_flags ${rooms} ${R_LIBS})
  endif()
  if(PACELINE_TESTS AND tests)
    add_executable(paceline_${room}_tests ${tests})
    target_link_libraries(paceline_${room}_tests PRIVATE paceline_${room} GTest::gtest_main GTest::gmock)
    target_compile_options(paceline_${room}_tests PRIVATE ${PACELINE_COLD_OPTIONS})
    gtest_discover_tests(paceline_${room}_tests TEST_PREFIX "${room}." PROPERTIES LABELS unit DISCOVERY_TIMEOUT 60)
  endif()
  if(PACELINE_TESTS AND gpu_tests)
    add_executable(paceline_${room}_gpu_tests ${gpu_tests})
    target_link_libraries(paceline_${room}_gpu_tests PRIVATE paceline_${room} GTest::gtest_main GTest::gmock)
    target_compile_options(paceline_${room}_gpu_tests PRIVATE ${PACELINE_COLD_OPTIONS})
    gtest_discover_tests(paceline_${room}_gpu_tests TEST_PREFIX "gpu.${room}." PROPERTIES LABELS gpu DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
