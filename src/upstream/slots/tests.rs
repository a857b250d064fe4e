use super::*;

fn take(slots: &ConnectionSlots) -> Option<ConnectionSlot> {
    match slots.try_take() {
        FreeSlot::Slot(slot) => Some(slot),
        _ => None,
    }
}

#[test]
fn there_are_as_many_slots_as_configured() {
    let slots = ConnectionSlots::new(2);
    let (first, second) = (take(&slots), take(&slots));
    assert!(first.is_some() && second.is_some() && take(&slots).is_none() && slots.is_full());
    drop(first);
    assert!(take(&slots).is_some());
    let unlimited = ConnectionSlots::new(0);
    assert!(matches!(unlimited.try_take(), FreeSlot::Unlimited) && !unlimited.is_full());
}

#[test]
fn half_of_them_may_be_for_one_request_each() {
    let slots = ConnectionSlots::new(5);
    let alone: Vec<_> = std::iter::from_fn(|| slots.try_take_alone()).collect();
    assert_eq!(alone.len(), 2);
    assert!(take(&slots).is_some());
    drop(alone);
    assert!(slots.try_take_alone().is_some());
    let one = ConnectionSlots::new(1);
    assert!(one.try_take_alone().is_some());
    let unlimited = ConnectionSlots::new(0);
    let alone: Vec<_> = std::iter::from_fn(|| unlimited.try_take_alone()).collect();
    assert_eq!(alone.len(), MAX_ALONE);
}

#[test]
fn a_reload_changes_how_many_may_be_for_one_request_each() {
    let slots = ConnectionSlots::new(4);
    let take_all = || -> Vec<_> { std::iter::from_fn(|| slots.try_take_alone()).collect() };
    let mut held = take_all();
    slots.resize(2);
    held.truncate(1);
    assert!(take_all().is_empty(), "one was given back, and one is gone");
    slots.resize(7);
    assert_eq!(take_all().len(), 2);
    slots.resize(0);
    assert_eq!(take_all().len(), MAX_ALONE - held.len());
    held.clear();
    slots.resize(1);
    assert_eq!(take_all().len(), 1);
}

#[test]
fn a_connection_that_turns_out_to_be_reusable_leaves_its_alone_permit_to_others() {
    let slots = ConnectionSlots::new(2);
    let slot = slots.try_take_alone().and_then(ConnectionSlot::reusable);
    assert!(slot.is_some() && slots.try_take_alone().is_some());
    let unlimited = ConnectionSlots::new(0);
    assert!(unlimited.try_take_alone().and_then(ConnectionSlot::reusable).is_none());
}

#[test]
fn no_other_connection_is_retired_for_others_until_the_slot_of_the_last_is_free() {
    let slots = ConnectionSlots::new(2);
    let (first, second) = (take(&slots), take(&slots));
    let place = slots.enter_queue(1).unwrap();
    assert!(slots.claim_urgent().is_none());
    place.mark_urgent();
    slots.claim_urgent().unwrap().hold_until_free(first.as_ref());
    place.mark_urgent();
    assert!(slots.claim_urgent().is_none());
    drop(first);
    slots.claim_urgent().unwrap().hold_until_free(second.as_ref());
    place.mark_urgent();
    assert!(slots.claim_urgent().is_none());
    drop((place, second));
    assert!(slots.claim_urgent().is_none(), "nobody waits");
    let place = slots.enter_queue(1).unwrap();
    place.mark_urgent();
    slots.claim_urgent().unwrap().hold_until_free(None);
    place.mark_urgent();
    assert!(slots.claim_urgent().is_some(), "no slot was to be freed");
}

#[test]
fn another_connection_may_be_retired_once_the_last_is_taken_back() {
    let slots = ConnectionSlots::new(2);
    let (first, second) = (take(&slots), take(&slots));
    let place = slots.enter_queue(1).unwrap();
    for _ in ["for the first time", "again"] {
        place.mark_urgent();
        slots.claim_urgent().unwrap().hold_until_free(first.as_ref());
        place.mark_urgent();
        assert!(slots.claim_urgent().is_none());
        first.as_ref().unwrap().release_claim();
    }
    slots.claim_urgent().unwrap().hold_until_free(second.as_ref());
    place.mark_urgent();
    drop(first);
    assert!(slots.claim_urgent().is_none(), "the second is retired");
    drop(second);
    assert!(slots.claim_urgent().is_some());
}

#[test]
fn only_so_many_wait() {
    let slots = ConnectionSlots::new(1);
    let places = (slots.enter_queue(2), slots.enter_queue(2));
    assert!(places.0.is_some() && places.1.is_some() && slots.enter_queue(2).is_none());
    drop(places);
    assert_eq!(slots.pending(), 0);
}
