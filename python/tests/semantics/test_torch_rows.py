"""Every row of the table "What you know from PyTorch, and what it does here" has tests that hold it."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent
GUIDE = HERE.parents[2] / "docs/pytorch.md"

TESTS: dict[str, tuple[str, ...]] = {
    "`clip_grad_norm_(model.parameters(), 1.0)`": (
        "clip: test_a_clip_has_both, test_the_clip_of_torch_takes_rows_of_the_optimizer",
        "clip: test_a_clip_has_rows_that_were_frozen_since, test_a_clip_of_fused_layers_is_an_error",
        "by_hand: test_gradients_of_two_layers_of_a_table_count_once_or_are_an_error",
    ),
    "a sum over `model.parameters()`: a norm to watch, a penalty in the loss": (
        "freeze: test_a_parameter_without_elements_is_no_row",
        "freeze: test_sums_over_parameters_have_no_rows_and_what_layers_return_has",
        "by_hand: test_gradients_that_are_changed_by_hand",
    ),
    "`register_hook` of a parameter": (
        "parameters: test_hooks_of_parameters_do_not_see_rows, test_hooks_of_results_and_modules",
    ),
    "gradient accumulation": ("accumulation: test_micro_batches_are_one_step",),
    "`torch.amp.GradScaler`": (
        "scaler: test_rows_are_those_of_torch_with_overflows, test_autocast_and_a_clip_between",
        "fused: test_a_scaler_is_an_error",
        "scaler: test_a_pipeline_knows_scaled_gradients",
    ),
    "a layer used twice, two layers on one table": ("layers: test_every_way_to_a_row_is_one_step",),
    "`torch.utils.checkpoint`": (
        "checkpoint: test_rows_are_those_of_torch, test_recomputation_sees_the_rows_of_its_step",
        "checkpoint: test_fused_layers_in_reentrant_checkpoints_are_an_error",
    ),
    "`requires_grad_(False)`, `torch.no_grad()`": (
        "freeze: test_rows_that_are_frozen_between_forward_and_backward_get_no_gradient",
        "freeze: test_frozen_models_and_looks_without_gradients",
    ),
    "schedulers": (
        "schedulers: test_rows_follow, test_a_plateau_and_the_state, test_the_lr_of_ftrl_cannot_change",
    ),
    "`step(closure)`": ("closure: test_a_closure",),
    "`zero_grad(set_to_none=False)`": (
        "accumulation: test_zeros_are_gradients_until_the_next_step",
        "batches: test_gradients_that_are_dropped_are_of_no_batch",
    ),
    "`model.zero_grad()`, `param.grad = None`": (
        "parameters: test_zero_grad_of_the_model_drops_gradients_of_rows",
        "ddp: test_gradients_that_are_dropped_after_an_average_begin_anew",
    ),
    "`.grad` of a parameter that a program changes, sets or drops: `p.grad.mul_(0.5)`, `p.grad.zero_()`": (
        "parameters: test_gradients_that_a_program_sets",
        "by_hand: test_gradients_that_are_changed_by_hand, test_a_gradient_that_is_written_in_place",
        "by_hand: test_gradients_of_several_tables_that_are_changed_by_hand",
        "by_hand: test_optimizers_see_no_gradients_of_rows",
        "by_hand: test_parameters_without_elements_do_not_meet_gradients_of_rows",
    ),
    "values that are written into a parameter: `clamp_`, `param.copy_`, `param.data.mul_`": (
        "parameters: test_values_that_are_written_into_rows_are_an_error",
        "parameters: test_values_that_are_written_into_data_of_rows_are_an_error",
    ),
    "`weight_decay`, `betas` and others in `param_groups`": (
        "parameters: test_what_a_row_optimizer_cannot_be_is_an_error",
    ),
    "`torch.autograd.grad` of parameters": (
        "parameters: test_gradients_by_autograd_grad_are_an_error",
        "parameters: test_gradients_of_parameters_are_an_error_in_every_thread",
    ),
    "several optimizers on a layer": (
        "parameters: test_what_a_row_optimizer_cannot_be_is_an_error",
        "by_hand: test_gradients_stay_when_their_optimizer_is_gone",
        "by_hand: test_gradients_of_an_optimizer_that_is_gone_are_not_lost",
    ),
    "layers of one table with several optimizers, or some of them fused": (
        "layers: test_two_optimizers_on_one_table_see_each_other",
        "several: test_gradients_of_two_row_optimizers_are_an_error_at_step",
        "several: test_fused_layers_beside_a_row_optimizer_are_an_error",
        "several: test_two_passes_of_fused_layers_on_one_table_are_an_error",
    ),
    "`backward` in several threads": ("accumulation: test_threads_give_their_gradients_to_one_step",),
    "`backward(create_graph=True)`": ("parameters: test_a_graph_of_gradients_is_an_error",),
    "a new optimizer in the middle of a training": (
        "state: test_a_new_row_optimizer_goes_on_with_the_moments",
    ),
    "a second loop over the data, for another epoch": (
        "left_loops: test_a_second_loop_gives_nothing_without_a_second_epoch",
    ),
    "a loop that is left (`break`, `zip(range(n), data)`), and another one over the same iterator": (
        "left_loops: test_loops_that_are_left_train_each_batch_once",
        "left_loops: test_a_pipeline_goes_on_with_an_iterator",
        "left_loops: test_a_batch_that_was_given_and_not_trained_comes_again",
        "left_loops: test_batches_of_a_trainer_that_is_gone_come_once",
    ),
    "no `zero_grad`": (
        "accumulation: test_gradients_that_nobody_drops_go_on",
        "batches: test_what_a_batch_cannot_be_is_an_error",
    ),
    "a `backward` without an optimizer": ("takers: test_a_backward_without_a_row_optimizer_is_an_error",),
    "`DistributedDataParallel`": (
        "ddp: test_ranks_are_one_process, test_ranks_that_nobody_averages_are_warned",
        "ddp_data: test_ranks_are_one_trainer, test_what_is_no_training_of_a_group",
    ),
    "FSDP, and what else puts other parameters in the place of those of a model": (
        "parameters: test_another_parameter_in_the_place_of_that_of_rows_is_an_error",
        "loading: test_a_load_that_assigns_keeps_the_parameter_that_stands_for_rows",
    ),
    "`.grad` of rows on one rank alone, also by `model.parameters()`": (
        "ddp: test_a_rank_that_does_something_else_is_an_error_and_nothing_is_sent",
    ),
    "`torch.optim.Adam(...)` for dense parameters on the PS": (
        "shared: test_a_parameter_without_a_gradient_stays, test_adam_with_one_gradient_of_three",
    ),
    "`torch.distributed.checkpoint`": (
        "state: test_a_shared_optimizer_is_not_stepped, test_the_state_of_a_row_optimizer",
        "state: test_rows_in_a_distributed_checkpoint",
    ),
    "keys, offsets and weights of any type, strided, of numpy": (
        "arguments: test_keys, test_offsets, test_weights, test_gradients_of_every_type_arrive",
    ),
    '`mode="sum"`, `"mean"`, `"max"`': ("collections: test_bags",),
    "`per_sample_weights`, `is_weighted=True`, a weighted `KeyedJaggedTensor`": (
        "collections: test_weighted_features_and_numbers_of_bags_that_differ",
    ),
    "a feature in two tables": ("collections: test_a_feature_in_two_tables_as_in_torchrec",),
    "`EmbeddingCollection` of `EmbeddingConfig`, `need_indices=True`": (
        "collections: test_sequences_as_in_torchrec",
    ),
    "a batch of its own per feature": (
        "collections: test_a_variable_batch_per_feature_as_in_torchrec",
        "collections: test_weighted_features_and_numbers_of_bags_that_differ",
    ),
    "initial values: N(0, 1) of `nn.Embedding`": ("loading: test_initial_values_are_those_of_the_table",),
    "MCH, MPZCH and the eviction of KVZCH": (
        "policy: test_layers_create_tables_with_a_policy, test_layers_hold_a_table_to_its_policy",
    ),
    "`half()`, `double()`, `to(dtype)`, `torch.set_default_dtype`": (
        "parameters: test_results_have_the_type_of_the_layer, test_defaults_of_torch_change_no_rows",
    ),
    "`embedding_dim`, `feature_names` of a configuration": (
        "collections: test_configurations_have_the_names_of_torchrec",
    ),
    "`layer.weight`, `from_pretrained`": ("parameters: test_a_weight_says_where_rows_are",),
    "`max_norm`, `norm_type`, `scale_grad_by_freq`, `padding_idx`, `sparse`, `num_embeddings`, `device`, "
    "`dtype`, `pooling`, `init_fn`, `data_type`": (
        "collections: test_what_layers_of_torch_have_and_these_do_not_is_an_error_with_a_sentence",
    ),
    "`copy.deepcopy(model)`": (
        "copies: test_a_copy_is_frozen_and_shows_the_rows_as_they_are",
        "copies: test_a_row_optimizer_of_a_copy_says_that_it_is_frozen",
    ),
    "`torch.optim.swa_utils.AveragedModel(model)`": (
        "copies: test_an_averaged_model_averages_dense_parameters_and_shows_rows",
    ),
    "`pickle`, `torch.save(model)`": (
        "copies: test_a_pickle_reconnects, test_a_pickle_of_one_of_two_clients",
        "parameters: test_a_row_optimizer_is_not_copied",
        "shared: test_a_shared_optimizer_is_not_copied",
    ),
    "a `DataLoader` whose workers hold a client, spawned or forked": (
        "copies: test_workers_that_hold_a_client",
    ),
    "`torch.compile`": ("copies: test_compile_breaks_the_graph_at_most, test_a_step_that_is_compiled",),
    "`torch.jit.trace`, `torch.jit.script`, `make_fx`": (
        "parameters: test_a_trace_is_an_error, test_a_script_is_an_error",
        "export: test_make_fx_is_an_error",
    ),
    "`state_dict()` of TorchRec": (
        "collections: test_a_state_dict_goes_to_torchrec_and_back",
        "export: test_collections_and_the_names_of_torchrec",
    ),
    "`load_state_dict(...)` of a checkpoint with rows": (
        "loading: test_rows_of_an_embedding_are_loaded_and_states_stay, test_names_of_torchrec",
        "loading: test_what_to_embedding_bag_gave_is_loaded, test_a_shard_of_a_tensor_is_an_error",
    ),
    "`load_state_dict(...)` by each rank, or by a trainer that was started again": (
        "ddp: test_ranks_that_load_go_back_together",
        "loading_again: test_what_training_has_moved_stays_and_a_warning_says_so",
        "loading_again: test_programs_that_load_at_once_set_rows_once",
        "loading_stalls: test_who_stalls_while_rows_are_sent_says_so, test_loads_take_no_tables",
    ),
    "values written into parameters of a `SharedOptimizer` (`load_state_dict`, `nn.init`, "
    "`param.data.copy_`, a clamp, by numpy)": (
        "shared_loading: test_a_change_takes_effect_as_in_torch, test_what_is_no_value_is_an_error",
        "shared_loading: test_in_a_batch, test_another_optimizer_takes_the_place_of_the_first",
    ),
    "`torch.func.functional_call`": (
        "parameters: test_a_functional_call_leaves_rows_as_they_are",
        "shared_loading: test_a_functional_call_has_the_values_that_it_is_given",
    ),
    "`torch.func.grad`, `vmap` and other transforms": (
        "parameters: test_a_look_up_within_a_transform_is_an_error",
    ),
    "`torch.export`, ONNX, AOTInductor": ("export: test_torch_export, test_onnx, test_aotinductor",),
}
"""Each row has what its first column says, and its tests: `FILE: names`, FILE without `test_torch_`."""


def rows_of_guide() -> list[str]:
    text = GUIDE.read_text()
    begin = text.index("\n## What you know from PyTorch, and what it does here\n")
    lines = text[begin : text.index("\n## ", begin + 1)].splitlines()
    cells = [line.removeprefix("| ").split(" | ")[0] for line in lines if line.startswith("| ")]
    return [cell for cell in cells if cell not in ("---", "PyTorch", "PyTorch, TorchRec")]


def names_of(file: str) -> set[str]:
    tree = ast.parse((HERE / f"test_torch_{file}.py").read_text())
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_each_row_of_the_table_has_tests() -> None:
    rows = rows_of_guide()
    assert len(rows) > 40
    assert rows == list(TESTS)


def test_tests_of_rows_are_there() -> None:
    for row, tests in TESTS.items():
        assert tests, row
        for each in tests:
            file, names = each.split(": ")
            missing = set(names.split(", ")) - names_of(file)
            assert not missing, f"{row}: {file} has no {missing}"
