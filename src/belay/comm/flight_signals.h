#pragma once
// Flight records at signals. A handler can reach nothing but a static: so the recorders that have a
// directory stand in a list.

namespace belay::comm {

class FlightRecorder;

// Once per process: crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) and requests to stop
// (SIGTERM, SIGINT) write all records, and then do what they did before.
void write_flight_records_at_signals();

// For handlers of their own, async-signal-safe. False if a record is just being written by whom
// the signal has interrupted.
bool write_flight_records(int signal, bool crash);

// A record has been written: a request to stop that came meanwhile is obeyed now.
void obey_postponed_request();

// Records beyond the 64th are written at errors only.
void remember_flight_recorder(FlightRecorder& recorder);
void forget_flight_recorder(FlightRecorder& recorder);

}  // namespace belay::comm
