# Everything a person or CI asks of this repository. `make help` lists it.
.DEFAULT_GOAL := help
.PHONY: help setup build test stress quickstart format clean clean-example

help:
	@echo "make quickstart     set up, build, train on MovieLens-100K, evaluate, rank (minutes)"
	@echo "make setup          install Debian packages and the project-local .venv"
	@echo "make build          build/release/paceline, with CUDA where nvcc is found"
	@echo "make test           every check and test, as CI runs them (LANES=\"format dev\" for some)"
	@echo "make stress         the random searches of the tests for ten minutes each (SECONDS=600)"
	@echo "make format         format all sources with clang-format 14"
	@echo "make clean          remove build/"
	@echo "make clean-example  remove what make quickstart imported and trained"

setup:
	@tools/setup.sh --checks

build:
	@tools/setup.sh
	@tools/build.sh AUTO

test:
	@tools/test.sh $(LANES)

SECONDS = 600
stress:
	@mkdir -p build/logs
	@cmake --preset release -DPACELINE_TESTS=ON >build/logs/release_configure.log
	@cmake --build build/release --target paceline_stress_tests paceline_allocation_tests
	@PL_STRESS_SECONDS=$(SECONDS) ctest --preset release -L stress

quickstart:
	@tools/quickstart.sh

format:
	@tools/check_format.sh --fix

clean:
	rm -rf build

clean-example:
	rm -rf examples/movielens/data examples/movielens/run
