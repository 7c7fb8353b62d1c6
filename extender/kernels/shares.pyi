from array import array

def divide(
    surplus: int,
    weight: array[int],
    room: array[int],
    granule: array[int],
    out: array[int],
) -> int: ...
