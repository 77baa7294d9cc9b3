cimport cython

from chakram.roce.fifo cimport Fifo
from chakram.roce.queue_pair cimport QueuePair
from chakram.roce.send_order cimport SendOrder


@cython.final
cdef class Turns:
    cdef readonly Fifo ring
    cdef long long _turn

    @cython.locals(order=SendOrder, mine="long long")
    cpdef object enter(self, QueuePair queue_pair)
    @cython.locals(order=SendOrder)
    cpdef object leave(self, QueuePair queue_pair)
    cpdef object end_turn(self)
    cpdef bint has_other_order(self, QueuePair queue_pair) except -1
    @cython.locals(ring=Fifo)
    cdef object _take_out(self, QueuePair queue_pair)
    @cython.locals(queue_pair=QueuePair, ring=Fifo)
    cdef object _set_aside(self, SendOrder order)
    cdef object _put_behind(self, QueuePair queue_pair, SendOrder order)
    @cython.locals(
        queue_pair=QueuePair, lowest="long long", turn="long long", behind=list
    )
    cdef object _call_up(self, SendOrder order)
