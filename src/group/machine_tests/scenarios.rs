//! `scenarios/*.txt`: commands, and what happens, indented, under each. `UPDATE_SCENARIOS=1` writes
//! what happens into the files; read the difference.

use super::script::run;

macro_rules! scenarios {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
    };
}

scenarios! {
    rp_108_commits_are_checked,
    rp_109_zombies_move_nothing,
    rp_109_a_commit_in_an_older_epoch_counts_for_what_was_kept,
    rp_110_joining_and_its_refusals,
    rp_111_static_members_come_again,
    rp_111_a_static_leader_and_a_write_that_fails,
    rp_111_a_static_member_with_other_topics_makes_a_round,
    rp_113_administrators_take_members_out,
    rp_113_an_id_goes_on_under_another_instance,
    rp_118_who_takes_over_waits_for_commits_on_their_way,
    rp_113_a_partition_is_handed_on_after_it_was_given_up,
    rp_113_epochs_are_checked,
    rp_113_static_members_are_released,
    rp_113_patterns_and_topics_that_change,
    rp_113_writes_that_fail_are_made_up_for,
    rp_113_groups_change_their_protocol_while_members_live,
    rp_113_groups_come_and_go,
    rp_113_who_has_not_seen_its_share_keeps_what_it_had,
    rp_113_a_policy_says_which_way_groups_change,
    rp_113_settings_of_a_group_hold_from_the_next_heartbeat,
    rp_113_distributions_are_as_far_apart_as_was_set,
    rp_90_offsets_of_a_transaction_wait_for_its_end,
    rp_115_offsets_in_transactions_are_kept,
    rp_114_only_committed_offsets_are_seen,
    rp_116_offsets_end_when_their_time_is_over,
    rp_119_a_clock_that_jumps_expires_nothing,
    rp_116_offsets_end_with_their_topic,
    rp_117_groups_in_use_stay,
    rp_119_sessions_end_by_the_monotonic_clock,
    a_round_with_late_and_lost_members,
    bi_36_tables_are_bounded,
    bi_36_what_is_known_grows_where_there_is_room,
    restart_keeps_generation_and_members,
    writes_that_fail,
}

fn check(name: &str) {
    let path = format!(
        "{}/machine_tests/scenarios/{name}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    let expected = std::fs::read_to_string(&path).expect("the scenario is there");
    let happened = run(&expected);
    if std::env::var_os("UPDATE_SCENARIOS").is_some() {
        std::fs::write(&path, &happened).expect("the scenario can be written");
        return;
    }
    let differs = happened
        .lines()
        .zip(expected.lines())
        .find(|(happened, expected)| happened != expected);
    assert!(
        happened == expected,
        "{name}: (happened, expected) {differs:?}\n{happened}"
    );
}
