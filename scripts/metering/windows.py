"""Which window each call counts in."""

# A gateway and the model see a call at slightly different times, and some gateways count whole seconds; in seconds.
TOLERANCE = 1.1


def overspent(calls, limit, length, is_aligned):
    """Returns the units beyond the limit of each window, if calls count where they began or where they ended, whichever is
    less, and the share of the limits of whole windows that was spent."""
    ways = [
        sums([(time(call), call.spent) for call in calls], limit, length, is_aligned)
        for time in (lambda call: call.began, lambda call: call.ended)
    ]
    beyond = min(sum(max(0, units - limit) for units in windows) for windows in ways)
    # The first and the last window are cut where they are aligned; the last one always is.
    whole = ways[0][1 if is_aligned else 0 : -1]
    share = sum(min(units, limit) for units in whole) / (limit * len(whole)) if whole else None
    return beyond, share


def sums(calls, limit, length, is_aligned):
    """Returns the units of each window. A call close to an edge counts in the earlier window if that has room."""
    windows, end = [], None
    for time, units in sorted(calls):
        is_before = end is not None and time < end - TOLERANCE
        has_room = end is not None and time < end + TOLERANCE and windows[-1] + units <= limit
        if is_before or has_room:
            windows[-1] += units
            continue
        windows.append(units)
        # A window with the edge within the tolerance is the next one already.
        end = ((time + TOLERANCE) // length + 1) * length if is_aligned else time + length
    return windows
