//! The test suite for every implementation of [`crate::Journal`].
//!
//! Call [`conformance_suite!`](crate::conformance_suite) in a test module with a function that creates an empty journal
//! from a [`budao_core::world::World`]. Each promise of the contract becomes a test of its own.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "it is made of tests")]

pub mod cluster;
pub mod commands;
pub mod evidence;
pub mod fixture;
pub mod follow;
pub mod lease;
pub mod once;
pub mod records;
pub mod retention;
pub mod timers;
pub mod views;

pub use fixture::{Fixture, ManualClock};

/// Generates one test per promise. `$make` is an `async fn(World) -> (guard, Arc<dyn Journal>)`; the guard (a temporary
/// directory, a server) is dropped when the test ends.
#[macro_export]
macro_rules! conformance_suite {
    ($make:expr) => {
        $crate::conformance_suite!(@each $make;
            lease::tokens_grow_and_are_never_given_twice
            lease::a_running_lease_is_not_taken_by_another
            lease::a_lease_that_ran_out_is_taken_by_another_and_its_writer_is_refused_for_ever
            lease::a_lease_that_ran_out_still_writes_until_another_takes_it
            lease::a_holder_may_take_its_own_lease_again_and_fences_itself
            lease::the_lease_of_a_holder_that_is_gone_is_taken_at_once
            lease::a_renewed_lease_runs_on
            lease::a_released_lease_is_dead_and_the_session_is_free
            lease::a_session_is_made_only_when_asked_for
            records::records_are_numbered_from_one_without_gaps
            records::what_was_appended_is_read_back_byte_for_byte
            records::an_append_at_a_wrong_position_is_a_conflict_that_names_the_head
            records::of_appends_that_race_for_a_position_exactly_one_wins
            records::an_append_that_failed_leaves_nothing_behind
            records::sessions_do_not_disturb_each_other
            records::pages_obey_their_limits_and_always_move
            records::a_position_beyond_the_head_is_an_epoch_mismatch
            records::an_unknown_session_is_said_to_be_unknown
            records::readers_beside_a_writer_see_whole_prefixes
            records::a_snapshot_names_the_position_it_covers
            commands::commands_wait_in_order_until_they_are_answered
            commands::a_command_submitted_twice_waits_once_and_gets_one_answer
            commands::a_command_id_used_for_something_else_is_refused
            commands::too_many_waiting_commands_are_refused
            commands::a_command_and_its_effects_are_appended_together
            commands::a_command_without_a_submission_is_remembered
            commands::a_command_that_was_withdrawn_never_takes_effect
            commands::what_was_answered_cannot_be_withdrawn
            commands::answering_what_does_not_wait_changes_nothing
            commands::a_waiter_gets_the_answer
            commands::a_writer_is_woken_by_a_command
            follow::goes_from_history_to_live_without_a_seam
            follow::from_every_position_gives_exactly_the_rest
            follow::under_concurrent_append_and_reconnects_gives_exactly_the_sequence
            follow::a_slow_follower_delays_no_writer_and_misses_nothing
            follow::waits_for_a_session_without_records
            follow::ends_with_a_fault_when_the_session_is_deleted
            follow::reports_a_gap
            evidence::the_digest_of_a_history_does_not_depend_on_its_batches
            evidence::removed_records_leave_their_digest
            once::a_key_belongs_to_the_call_that_claimed_it_first
            once::a_call_that_did_nothing_gives_its_key_back
            once::an_older_attempt_gives_nothing_up_for_a_newer_one
            once::of_calls_that_race_for_a_key_exactly_one_gets_it
            once::keys_have_a_retention_of_their_own
            retention::retention_removes_nothing_that_the_state_needs
            retention::retention_keeps_the_requested_number_of_records
            retention::the_content_of_a_command_goes_with_its_records
            retention::retention_by_count_leaves_an_exact_gap
            retention::retention_by_bytes_leaves_an_exact_gap
            retention::retention_by_age_leaves_an_exact_gap
            retention::a_fold_needs_nothing_from_before_its_snapshot
            retention::a_fold_without_a_snapshot_or_its_records_is_a_gap
            retention::appending_goes_on_after_everything_was_removed
            retention::old_finished_sessions_go_and_unfinished_ones_stay
            retention::a_deleted_session_is_unknown_to_every_reader
            retention::a_session_made_again_is_another_incarnation
            retention::outputs_are_kept_by_content_as_long_as_a_session_uses_them
            retention::an_output_above_the_limit_is_refused
            views::sessions_are_found_by_what_happened_in_them
            views::a_session_shows_what_it_is_doing
            views::pages_of_sessions_do_not_overlap
            views::unfinished_turns_and_waiting_commands_are_listed
            views::codes_are_counted_over_time
            views::views_made_again_are_the_same
            timers::sessions_with_timers_are_listed_by_their_next_time
            timers::the_timers_of_a_tenant_are_counted_apart
            timers::a_session_with_a_timer_is_not_removed_for_its_age
            timers::timers_outlive_the_records_that_set_them
            cluster::nodes_are_listed_with_the_time_since_their_last_beat
            cluster::unfinished_sessions_without_a_living_writer_are_orphaned
            cluster::a_reserved_session_is_orphaned_only_without_its_node
            cluster::a_writer_learns_what_clients_of_other_nodes_observe
            cluster::a_note_changes_only_from_the_version_that_was_read
        );
    };
    (@each $make:expr; $($module:ident :: $promise:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            let fixture = $crate::conformance::Fixture::prepare();
            let (_guard, journal) = ($make)(fixture.world.clone()).await;
            $crate::conformance::$module::$promise(&fixture.with(journal)).await;
        }
    )*};
}
