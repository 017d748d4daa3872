"""What can go wrong, what the user sees, and the tests that make it go wrong for real: ``python -m tests.faults``.

One row a fault. ``sees`` are the beginnings of messages in the code, each said in Bengali and in English (or texts of
the set-up, which says everything twice); ``tests`` are ids as pytest writes them. tests/test_faults.py holds the table
to the code: every message is there in both languages, every test exists.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    fault: str
    sees: tuple[str, ...]
    tests: tuple[str, ...]


HERE = "tests/test_faults.py::"
TABLE = (
    Row(
        "no C++ compiler",
        ("torch.compile needs a C++ compiler here", "There is no working C++ compiler here, so `{name}`", "not found"),
        (HERE + "test_no_compiler_on_the_path", "tests/test_hardware.py::test_no_compiler_is_a_row_with_a_command",
         "tests/test_hardware.py::test_a_compiler_that_does_not_compile_is_no_compiler",
         "tests/test_lesson03.py::test_without_a_compiler_the_lesson_goes_on",
         "tests/test_lesson04.py::test_without_a_compiler_the_lesson_goes_on",
         "tests/test_setup.py::test_no_compiler"),
    ),
    Row(
        "a GPU without a working Triton",
        ("torch.compile needs Triton on this GPU, and Triton does not work here. lab.machine()",
         "torch.compile needs Triton on this GPU, and Triton does not work here, so what you compile runs eager",
         "Triton is installed, but does not work here"),
        ("tests/test_compiling.py::test_waiting_for_the_compiler_says_it_once_and_then_it_runs_eager",
         "tests/test_compiling.py::test_compiled_code_that_is_hidden_in_a_function_fails_with_the_reason",
         "tests/test_compiling.py::test_the_place_says_whether_triton_is_missing_or_broken",
         "tests/test_compiling.py::test_a_broken_triton_is_mended_by_what_it_lacks"),
    ),
    Row(
        "read-only home folder",
        ("your home folder cannot be written to",),
        (HERE + "test_a_read_only_home",),
    ),
    Row(
        "no write access to the notebook's folder",
        ("this folder cannot be written to", "The cell could not be saved as {name}",
         "The file could not be written: {error}."),
        (HERE + "test_a_folder_that_cannot_be_written_to",),
    ),
    Row(
        "full disk",
        ("the disk is full", "Nothing was started: ranks need a few small files",
         "no space left on the disk of {path}", "There is no space left on the disk"),
        (HERE + "test_a_full_disk_keeps_what_was_there", HERE + "test_a_launch_with_no_room_for_its_files",
         "tests/test_checkpoint.py::test_a_full_disk_is_called_one",
         "tests/test_launch_faults.py::test_the_disk_is_full_during_a_distributed_checkpoint",
         "tests/test_setup.py::test_disk_full_before_anything_is_written",
         "tests/test_setup_install.py::test_disk_fills_up_in_the_middle"),
    ),
    Row(
        "no fonts",
        ("not possible here: figures are in English", "no Bengali font on this system"),
        (HERE + "test_fonts_that_are_gone", "tests/test_plots.py::test_without_a_font_figures_are_in_english",
         "tests/test_plots.py::test_without_shaping_a_png_is_drawn_in_english"),
    ),
    Row(
        "old Python",
        ("labkit is tested with Python 3.11, 3.12 and 3.13",),
        ("tests/test_setup.py::test_only_a_wrong_python", "tests/test_setup.py::test_the_setup_loads_on_old_pythons",
         "tests/test_setup.py::test_no_python_at_all"),
    ),
    Row(
        "an extra is missing",
        ("nbgrader is missing", "MXNet is not installed here"),
        (HERE + "test_a_missing_extra", "tests/test_mx.py::test_no_wheel_is_said_with_the_way_out",
         "tests/test_setup_install.py::test_no_mxnet_for_this_machine"),
    ),
    Row(
        "torn or tampered data file",
        ("The data file {name} is not as labkit knows it", "The data file {name} is not there",
         "This checkpoint asks for {name}, which no honest checkpoint needs"),
        ("tests/test_datasets.py::test_a_damaged_file_is_refused_with_the_command_that_mends_it",
         "tests/test_datasets.py::test_a_damaged_model_is_not_opened",
         "tests/test_datasets.py::test_a_missing_file_is_named",
         "tests/test_datasets.py::test_a_pickle_in_the_place_of_an_array_is_not_opened",
         "tests/test_checkpoint.py::test_loading_runs_no_code_of_the_metadata",
         "tests/test_checkpoint.py::test_loading_runs_no_code_of_the_values",
         "tests/test_checkpoint.py::test_only_complete_checkpoints_are_resumed_from"),
    ),
    Row(
        "kernel restarted half-way",
        ("This kernel does not know `{name}` yet",),
        (HERE + "test_a_cell_after_a_restart", "tests/test_kernel_faults.py::test_the_kernel_is_restarted",
         "tests/test_kernel_faults.py::test_the_kernel_is_interrupted",
         "tests/test_kernel_faults.py::test_the_kernel_is_killed",
         "tests/test_mxnet_faults.py::test_the_kernel_is_interrupted_restarted_and_killed"),
    ),
    Row(
        "cell run out of order",
        ("This kernel does not know `{name}` yet", "Line {line} uses {name}, which exists in the notebook"),
        (HERE + "test_a_cell_after_a_restart", HERE + "test_other_errors_get_no_advice_about_order",
         "tests/test_cell_script.py::test_a_notebook_variable_is_refused_with_the_way_to_pass_it"),
    ),
    Row(
        "two notebooks measuring at once",
        ("Another notebook measured on this machine at the same time", "Waiting, half a minute at most: another note"),
        (HERE + "test_two_notebooks_take_turns", HERE + "test_a_turn_that_never_comes_is_noted",
         HERE + "test_a_lab_says_that_another_notebook_measures",
         "tests/test_widgets.py::test_two_labs_never_measure_at_once_and_the_second_says_that_it_waits"),
    ),
    Row(
        "out of memory",
        ("The memory ran out in {name}", "The memory ran out, so nothing was measured", "The memory of the device is",
         "Somebody killed it. If nobody did so on purpose"),
        (HERE + "test_main_memory_runs_out", HERE + "test_a_ranks_memory_runs_out", HERE + "test_gpu_memory_runs_out",
         "tests/test_widgets.py::test_memory_that_ran_out_inside_a_timed_function_is_recognised",
         "tests/test_launch_faults.py::test_fault"),
    ),
    Row(
        "a laptop on battery that throttles",
        ("The last runs took {ratio} times as long as the first", "This machine runs on its battery", "on battery"),
        (HERE + "test_a_processor_that_gets_slower", HERE + "test_a_laptop_on_battery",
         HERE + "test_steady_runs_are_not_called_slower", HERE + "test_a_process_that_is_really_held_back",
         "tests/test_comparison.py::test_drift_hits_both_alike_but_fools_two_measurements"),
    ),
    Row(
        "a clock that jumps",
        ("One run took far longer than all the others", "This machine's clock goes back again and again"),
        (HERE + "test_a_clock_that_jumps_ahead", HERE + "test_a_clock_that_goes_back",
         HERE + "test_the_time_of_day_may_jump"),
    ),
    Row(
        "no network",
        ("Packages cannot be downloaded: the network does not answer",),
        (HERE + "test_labs_and_ranks_need_no_network", HERE + "test_the_set_up_cell_without_a_network",
         "tests/test_setup.py::test_what_pip_says_is_explained",
         "tests/test_setup_offline.py::test_packed_for_a_lab_without_internet"),
    ),
)  # fmt: skip


def main() -> None:
    for row in TABLE:
        print(f"{row.fault}\n" + "".join(f"    {text} …\n" for text in row.sees)
              + "".join(f"      {name}\n" for name in row.tests))  # fmt: skip


if __name__ == "__main__":
    main()
