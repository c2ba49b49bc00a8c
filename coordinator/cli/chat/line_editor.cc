#include "coordinator/cli/chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/chat/terminal_hold.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

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
  ~State();

  std::unique_ptr<TerminalHold> hold;
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
  bool typed = false;

  static State* Of(EditLine* editor) {
    void* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return static_cast<State*>(state);
  }
  static char* Prompt(EditLine* editor) { return Of(editor)->prompt.data(); }
  static int NextCharacter(EditLine* editor, wchar_t* character) { return Of(editor)->Next(character); }

  void SetModes();
  int Next(wchar_t* character);
  bool ReadBytes();
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
  // A Ctrl-D from before the terminal was held has become a null in its buffer.
  const LineInfoW* line = el_wline(editor);
  if (*character == L'\0' && line->lastchar == line->buffer) *character = L'\x04';
  return true;
}

// What libedit calls the modes of editing, for the whole conversation: by itself it shows a prompt before it sets them,
// and takes them back after each line. Ctrl-C leaves it to the holder of the terminal what to drop, and a byte that was
// dropped between poll() and read() is not waited for.
void LineEditor::State::SetModes() {
  el_set(editor, EL_EDITMODE, 1);  // whatever ~/.editrc says: a line that the kernel edits is lost at Ctrl-C
  el_set(editor, EL_SETTY, "-d", "+noflsh", "min=\\000", "time=\\000", nullptr);
  el_set(editor, EL_SETTY, "-x", "+inlcr", "+noflsh", "-icanon", "-echo", "-echok", "-iexten", "min=\\000",
         "time=\\000", nullptr);
  el_set(editor, EL_PREP_TERM, 1);
  hold->Hold();
}

void LineEditor::State::FollowTerminal() {
  if (hold->TakeWindowChange()) el_resize(editor);
  if (hold->Regain()) el_set(editor, EL_REFRESH);
}

// False at the end.
bool LineEditor::State::ReadBytes() {
  char buffer[256];
  const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
  if (got > 0) bytes.append(buffer, static_cast<size_t>(got));
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  pollfd terminal = {STDIN_FILENO, POLLIN, 0};  // one that is gone is an end, too; one without a byte is none
  return got > 0 || poll(&terminal, 1, 0) <= 0 || (terminal.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
}

// As libedit asks: how many characters were read; 0 at the end, -1 to end the reading.
int LineEditor::State::Next(wchar_t* character) {
  while (true) {
    if (TakeCharacter(character)) return 1;
    FollowTerminal();
    const absl::StatusOr<Awaited> awaited = (*await)(STDIN_FILENO);
    error = awaited.status();
    signal = awaited.ok() && *awaited == Awaited::kSignal;
    if (signal) {
      const LineInfoW* line = el_wline(editor);
      typed = line->lastchar > line->buffer || !bytes.empty();
      bytes.clear();
    }
    if (!error.ok() || signal) return -1;
    if (*awaited == Awaited::kSpoke) el_set(editor, EL_REFRESH);
    if (*awaited == Awaited::kReadable && !ReadBytes()) return 0;
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

LineEditor::State::~State() {
  if (editor != nullptr) {
    el_set(editor, EL_EDITMODE, 0);  // who holds the terminal gives it back
    el_end(editor);
  }
  if (history != nullptr) history_wend(history);
}

absl::StatusOr<std::unique_ptr<LineEditor>> LineEditor::Open(const LineHistory* history) {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
  auto state = std::make_unique<State>();
  state->history_lines = history;
  ASSIGN_OR_RETURN(state->hold, TerminalHold::Begin(STDIN_FILENO));
  state->history = history_winit();
  EditLine* editor = state->editor = el_init("coordinator", stdin, stdout, stderr);
  if (editor == nullptr || state->history == nullptr) {
    return absl::ResourceExhaustedError("the line editor cannot be started: there is no memory for it");
  }
  HistEventW event;
  history_w(state->history, &event, H_SETSIZE, static_cast<int>(LineHistory::kMostLines));
  el_set(editor, EL_CLIENTDATA, state.get());
  el_set(editor, EL_PROMPT, &State::Prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 0);
  el_wset(editor, EL_HIST, history_w, state->history);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(editor, nullptr);
  el_set(editor, EL_GETCFN, &State::NextCharacter);
  state->SetModes();
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(state)));
}

LineEditor::LineEditor(std::unique_ptr<State> state) : state_(std::move(state)) {}

LineEditor::~LineEditor() = default;

void LineEditor::Forget() { state_->bytes.clear(); }

absl::StatusOr<LineRead> LineEditor::Read(const std::string& prompt, const AwaitInput& await) {
  State& state = *state_;
  state.prompt = prompt;
  state.await = &await;
  state.signal = false;
  state.error = absl::OkStatus();
  state.UpdateHistory();
  el_resize(state.editor);
  int count = 0;
  const wchar_t* line = el_wgets(state.editor, &count);
  if (!state.error.ok()) return state.error;
  if (state.signal) return LineRead{.kind = LineRead::Kind::kSignal, .typed = state.typed};
  if (line == nullptr || count <= 0) return LineRead{.kind = LineRead::Kind::kEnd};
  std::string text = ToUtf8(line, line + count);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return LineRead{.kind = LineRead::Kind::kLine, .text = std::move(text)};
}

}  // namespace stagecoach
