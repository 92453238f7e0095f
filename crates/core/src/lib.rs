//! Faults and their catalog, domain events, the tool contract, sessions as a fold, the turn as a state machine.
