#ifndef STAGECOACH_COORDINATOR_FRONT_SIGNALS_H_
#define STAGECOACH_COORDINATOR_FRONT_SIGNALS_H_

// Signals as bytes in a pipe that the main loop waits for.
//
// SIGINT and SIGTERM ask the program to stop: the first cancels what runs, the second ends the program. So does SIGHUP,
// unless the program was started with it ignored (nohup). SIGUSR1 asks it to drain: take no new work and finish what
// runs. SIGPIPE is ignored.

namespace stagecoach {

class SignalWatch {
 public:
  // Records SIGUSR1 from now on, before there is an object.
  static void NoteDrain();

  // Installs the handlers at the first call; they stay. One object a process.
  static SignalWatch& Get();

  int descriptor() const { return read_end_; }  // readable after a signal or Wake, until Clear
  void Clear();
  void Wake();  // from any thread

  int stops() const;  // SIGINT, SIGTERM and SIGHUP in a row: what is typed between two SIGINTs begins a new row
  struct Stops {
    int count = 0;
    bool after_typing = false;  // something was typed between the first of them and the one before it
  };
  // The same, and resets the count if all were SIGINT: for a program in which a SIGINT stops the current task only.
  Stops ForgetStops();
  bool terminated() const;  // one of them was SIGTERM or SIGHUP
  int drains() const;       // SIGUSR1 so far
  bool drain() const { return drains() > 0; }
  // From now on the second stop ends the process in the handler, with exit code 130, for phases without a main loop.
  // (The job ends when its front is gone.) Before this call the third one does.
  void EndAtSecondStop();

  // What a program that holds a terminal adds to the handlers: functions that are async-signal-safe.
  struct Terminal {
    bool (*drop_typed)();  // at SIGINT: drops what was typed before it and not read; whether there was any
    void (*give_back)();   // before a handler ends the process
  };
  // `terminal` stays until nullptr is given.
  static void SetTerminal(const Terminal* terminal);

 private:
  SignalWatch();
  int read_end_ = -1;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_SIGNALS_H_
