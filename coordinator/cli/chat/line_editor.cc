#include "coordinator/cli/chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

volatile sig_atomic_t g_window_changed = 0;
volatile sig_atomic_t g_continued = 0;

void OnTerminalSignal(int signal) { (signal == SIGWINCH ? g_window_changed : g_continued) = 1; }

// Catches what changes the terminal under an editor, while it is in scope. A handled signal also wakes poll().
class TerminalSignals {
 public:
  TerminalSignals() {
    struct sigaction action = {};
    action.sa_handler = OnTerminalSignal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, &window_);
    sigaction(SIGCONT, &action, &continued_);
  }
  ~TerminalSignals() {
    sigaction(SIGWINCH, &window_, nullptr);
    sigaction(SIGCONT, &continued_, nullptr);
  }
  TerminalSignals(const TerminalSignals&) = delete;

 private:
  struct sigaction window_ = {};
  struct sigaction continued_ = {};
};

// wchar_t is a code point on Linux.
std::wstring ToWide(absl::string_view utf8) {
  std::wstring wide;
  for (size_t at = 0; at < utf8.size();) {
    const DecodedChar next = DecodeUtf8(utf8, at);
    wide += static_cast<wchar_t>(next.code_point);
    at += next.bytes;
  }
  return wide;
}

std::string ToUtf8(const wchar_t* begin, const wchar_t* end) {
  std::string utf8;
  for (; begin < end; ++begin) AppendUtf8(static_cast<uint32_t>(*begin), &utf8);
  return utf8;
}

}  // namespace

struct LineEditor::State {
  const LineHistory* history_lines = nullptr;
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  std::string prompt;
  std::string last_line;  // of the history that libedit has
  std::string bytes;      // read, not yet taken by libedit

  // Of one Read.
  const AwaitInput* await = nullptr;
  absl::Status error;
  bool signal = false;
  std::string typed;

  static State* Of(EditLine* editor) {
    void* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return static_cast<State*>(state);
  }
  static char* Prompt(EditLine* editor) { return Of(editor)->prompt.data(); }
  static int NextCharacter(EditLine* editor, wchar_t* character) { return Of(editor)->Next(character); }

  int Next(wchar_t* character);
  bool TakeCharacter(wchar_t* character);
  void FollowTerminal();
  void UpdateHistory();
};

bool LineEditor::State::TakeCharacter(wchar_t* character) {
  std::string whole;
  // All but a character that is not there to its end; broken ones are U+FFFD by now.
  const size_t taken = AppendWholeUtf8(bytes, &whole);
  bytes = whole + bytes.substr(taken);
  if (whole.empty()) return false;
  const DecodedChar next = DecodeUtf8(bytes, 0);
  *character = static_cast<wchar_t>(next.code_point);
  bytes.erase(0, next.bytes);
  // A Ctrl-D from before this terminal was ours, while an answer came, has become a null in its buffer.
  const LineInfoW* line = el_wline(editor);
  if (*character == L'\0' && line->lastchar == line->buffer) *character = L'\x04';
  return true;
}

void LineEditor::State::FollowTerminal() {
  if (g_window_changed != 0) {
    g_window_changed = 0;
    el_resize(editor);
  }
  if (g_continued != 0) {  // the shell has set the terminal as it likes it
    g_continued = 0;
    el_set(editor, EL_PREP_TERM, 1);
    el_set(editor, EL_REFRESH);
  }
}

// As libedit asks: how many characters were read; 0 at the end, -1 to end the reading.
int LineEditor::State::Next(wchar_t* character) {
  while (true) {
    FollowTerminal();
    if (TakeCharacter(character)) return 1;
    const absl::StatusOr<Awaited> awaited = (*await)(STDIN_FILENO);
    error = awaited.status();
    signal = awaited.ok() && *awaited == Awaited::kSignal;
    if (signal) {
      const LineInfoW* line = el_wline(editor);
      typed = ToUtf8(line->buffer, line->lastchar);
    }
    if (!error.ok() || signal) return -1;
    if (*awaited == Awaited::kSpoke) el_set(editor, EL_REFRESH);
    if (*awaited != Awaited::kReadable) continue;
    char buffer[256];
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got > 0) bytes.append(buffer, static_cast<size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return 0;  // a terminal that is gone is an end too
  }
}

// Lines that were added since; the history shortens itself at its other end.
void LineEditor::State::UpdateHistory() {
  const std::vector<std::string>& lines = history_lines->lines();
  size_t from = lines.size();
  while (from > 0 && lines[from - 1] != last_line) --from;
  HistEventW event;
  for (; from < lines.size(); ++from) history_w(history, &event, H_ENTER, ToWide(lines[from]).c_str());
  if (!lines.empty()) last_line = lines.back();
}

LineEditor::LineEditor(const LineHistory* history) : state_(std::make_unique<State>()) {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
  state_->history_lines = history;
  state_->editor = el_init("coordinator", stdin, stdout, stderr);
  state_->history = history_winit();
  HistEventW event;
  history_w(state_->history, &event, H_SETSIZE, static_cast<int>(LineHistory::kMostLines));
  EditLine* editor = state_->editor;
  el_set(editor, EL_CLIENTDATA, state_.get());
  el_set(editor, EL_PROMPT, &State::Prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 0);
  el_wset(editor, EL_HIST, history_w, state_->history);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(editor, nullptr);
  el_set(editor, EL_GETCFN, &State::NextCharacter);
}

LineEditor::~LineEditor() {
  el_end(state_->editor);
  history_wend(state_->history);
}

absl::StatusOr<LineRead> LineEditor::Read(const std::string& prompt, const AwaitInput& await) {
  State& state = *state_;
  const TerminalSignals signals;
  state.prompt = prompt;
  state.await = &await;
  state.signal = false;
  state.error = absl::OkStatus();
  state.UpdateHistory();
  el_resize(state.editor);
  int count = 0;
  const wchar_t* line = el_wgets(state.editor, &count);
  if (!state.error.ok()) return state.error;
  if (state.signal) return LineRead{LineRead::Kind::kSignal, state.typed};
  if (line == nullptr || count <= 0) return LineRead{LineRead::Kind::kEnd, ""};
  std::string text = ToUtf8(line, line + count);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return LineRead{LineRead::Kind::kLine, std::move(text)};
}

}  // namespace stagecoach
