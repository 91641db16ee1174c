# Two commands for a newcomer: `make demo` and `make test`, each from a bare clone.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OLDEST := 5.15.0
# Dozens of interpreters start here: without bytecode each would compile torch and transformers again, which takes 15 seconds
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test notebooks test-all test-gpu test-engines pages docs check browser bench bench-gpu fuzz test-oldest oldest format

demo: $(VENV)/installed
	$(BIN)/lengthwise demo

# One thread a worker: the tests are many small ones, and none looks at what was logged, which takes a millisecond a test
PYTEST := -m pytest -n 2 --dist worksteal -p no:logging --ignore=tests/gpu --ignore=tests/engines
test: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m 'not sweep and not notebook'

# The notebooks, each run whole
notebooks: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/notebooks

# Before a release: the crossings of many parameters as well
test-all: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)

# The kernels on a GPU; most of the time goes into compiling them, hence the workers
test-gpu: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 12 tests/gpu

# Exports, run in llama.cpp, CTranslate2, ONNX Runtime and plain transformers
test-engines: $(VENV)-engines/installed
	OMP_NUM_THREADS=1 $(VENV)-engines/bin/python -m pytest tests/engines

# Every page and figure of the experiments, from their committed results
pages: $(VENV)/installed
	$(BIN)/python -m experiments.pages

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.check_numbers

# What the test of a report in a real browser needs
browser:
	scripts/install_browser.sh

# The site, into site/; a warning is an error
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

bench: $(VENV)/installed
	$(BIN)/python benchmarks/attention_cpu.py --out benchmarks/results/attention_cpu.json

# Hostile commands and damaged files, the same for the same seed; fails where one ends as it should not (docs/reliability.md)
FUZZ_SEED ?= 1
fuzz: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m scripts.fuzz --seed $(FUZZ_SEED) --commands 500 --files 300 --minutes 10 \
		--out scripts/fuzz/results/seed-$(FUZZ_SEED).json

# Two minutes of an H200 show what was promised, more show more
BENCH_SECONDS ?= 130
bench-gpu: $(VENV)/installed
	$(BIN)/python benchmarks/attention_gpu.py --seconds $(BENCH_SECONDS) --out benchmarks/results/attention_gpu.json

# The suite against the oldest transformers we promise, which the constraints do not pin; without experiments and benchmarks, which
# promise nothing, without what never meets transformers, and without what meets it only through calls that other tests make
WITHOUT_TRANSFORMERS := $(addprefix --ignore=tests/,attention benchmarks calibration/test_parabola.py calibration/test_search.py \
	$(addprefix cli/,test_completion.py test_lists.py test_options.py test_report.py test_standard_output.py) \
	common evaluation/sweep/test_on_ray.py experiments helpers methods/temperature \
	$(patsubst %,methods/test_%.py,base dry_run sampled_positions slots spec) \
	$(patsubst %,methods/positions/test_%.py,clex clipped_rope dpe dual_chunk eabf lm_infinite ms_poe nope pose \
	random_positions rerope self_extend streaming_llm string window) notebooks records report scripts tasks \
	$(addprefix training/output_alignment/,test_fused.py test_loss.py test_outrep.py test_views.py) test_distribution.py test_readme.py)
THROUGH_OTHERS := $(addprefix --ignore=tests/,analysis calibration/test_answers.py calibration/test_calibrate.py \
	$(patsubst %,cli/test_%.py,analysis calibration demo evaluation new_interpreter) docs/test_adding_a_method.py \
	$(addprefix evaluation/,recommendation sweep/test_questions.py test_evaluate.py test_kills.py test_own_code.py test_reach.py) \
	models/test_check.py models/test_interrupts.py)
oldest: $(VENV)-$(OLDEST)/installed
test-oldest: oldest
	OMP_NUM_THREADS=1 $(VENV)-$(OLDEST)/bin/python $(PYTEST) -m 'not sweep' $(WITHOUT_TRANSFORMERS) $(THROUGH_OTHERS)

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch first and alone, at the version the constraints name: a build that is there already, for CPUs or for CUDA, is kept.
# Modules are compiled when they are first imported: most of what is installed never is
INSTALL := install --quiet --no-compile --constraint
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
# That of Python 3.11 takes a minute longer to choose among what the indexes list
	$(BIN)/pip install --quiet 'pip>=25'
	$(BIN)/pip $(INSTALL) constraints.txt torch
# Every version is known: two halves go side by side, each without a look at what it needs, and the last line adds what is missing
	for half in 0 1; do \
		awk "/==/ && !/^torch==/ && NR % 2 == $$half" constraints.txt > $(VENV)/half-$$half.txt; \
		$(BIN)/pip install --quiet --no-compile --no-deps --requirement $(VENV)/half-$$half.txt & \
	done; wait
	$(BIN)/pip $(INSTALL) constraints.txt --editable '.[dev]'
	touch $@

# The first environment seen through a second one, which has the oldest transformers, and what that brings along, in front
$(VENV)-$(OLDEST)/installed: $(VENV)/installed
	$(PYTHON) -m venv --without-pip $(VENV)-$(OLDEST)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" \
		> $$($(VENV)-$(OLDEST)/bin/python -c 'import site; print(site.getsitepackages()[0])')/newest.pth
	grep -Ev '^(transformers|tokenizers|huggingface_hub|hf-xet)==' constraints.txt > $(VENV)-$(OLDEST)/constraints.txt
	$(BIN)/pip --python $(VENV)-$(OLDEST)/bin/python $(INSTALL) $(VENV)-$(OLDEST)/constraints.txt transformers==$(OLDEST) --editable .
	touch $@

# The first environment seen through a second one that has the engines; llama.cpp is compiled, which takes minutes
$(VENV)-engines/installed: $(VENV)/installed tests/engines/requirements.txt
	$(PYTHON) -m venv --without-pip $(VENV)-engines
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" \
		> $$($(VENV)-engines/bin/python -c 'import site; print(site.getsitepackages()[0])')/first.pth
	CMAKE_ARGS=-DLLAVA_BUILD=OFF $(BIN)/pip --python $(VENV)-engines/bin/python install --quiet --no-deps \
		--requirement tests/engines/requirements.txt
	touch $@
