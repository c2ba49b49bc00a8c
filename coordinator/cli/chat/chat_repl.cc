#include "coordinator/cli/chat/chat_repl.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/front/model_file.h"
#include "coordinator/front/signals.h"

namespace stagecoach {
namespace {

constexpr char kPrompt[] = "> ";
constexpr char kPromptInside[] = "... ";  // of a message that continues
constexpr size_t kMostDialogueBytes = size_t{64} << 20;
constexpr char kInterrupted[] = "interrupted";

// "~": the server does not count tokens; their number is about that of the pieces.
std::string CountedTokens(int64_t count, bool counted) {
  return absl::StrCat(counted ? "" : "~", CountOf(count, "token"));
}

std::string TokensPerSecond(int64_t gaps, double seconds) {
  return gaps > 0 && seconds > 0 ? absl::StrFormat("%.1f tokens/s", static_cast<double>(gaps) / seconds) : "";
}

}  // namespace

ChatRepl::ChatRepl(ChatBackend* backend, LineSource* lines, ChatScreen* screen, LineHistory* history)
    : backend_(backend), lines_(lines), screen_(screen), history_(history) {}

absl::Status ChatRepl::Run() {
  RETURN_IF_ERROR(backend_->Prepare());
  if (screen_->terminal()) {
    RETURN_IF_ERROR(screen_->Note(absl::StrCat(backend_->Name(), "; /help lists commands, Ctrl-D leaves")));
  }
  const AwaitInput await = [this](int descriptor) { return backend_->AwaitInput(descriptor); };
  while (!leaving_) {
    ASSIGN_OR_RETURN(const LineRead read, lines_->Read(reader_.inside() ? kPromptInside : kPrompt, await));
    switch (read.kind) {
      case LineRead::Kind::kLine: RETURN_IF_ERROR(TakeLine(read.text)); break;
      case LineRead::Kind::kSignal: RETURN_IF_ERROR(OnSignal(read)); break;
      case LineRead::Kind::kEnd: RETURN_IF_ERROR(Leave()); break;
    }
  }
  if (screen_->terminal() || inputs_refused_ == 0) return absl::OkStatus();
  const std::string what = absl::StrCat(CountOf(inputs_refused_, "line"), inputs_refused_ == 1 ? " was" : " were",
                                        " refused; why, is said above");
  return failed_ ? absl::UnavailableError(what) : absl::InvalidArgumentError(what);
}

// At a terminal what was begun is as good as not typed; a file that ends within a fence was cut short at most.
absl::Status ChatRepl::Leave() {
  leaving_ = true;
  if (screen_->terminal()) return screen_->NewLine();
  return TakeInput(reader_.TakeUnfinished());
}

absl::Status ChatRepl::OnSignal(const LineRead& read) {
  SignalWatch& signals = SignalWatch::Get();
  const bool final = signals.terminated() || signals.drain() || !screen_->terminal();
  const SignalWatch::Stops stops = signals.ForgetStops();
  if (final) return absl::CancelledError(kInterrupted);
  if (stops.count == 0) return absl::OkStatus();
  RETURN_IF_ERROR(screen_->NewLine());
  const bool forgets = read.typed || stops.after_typing || reader_.inside();
  reader_.Drop();
  interrupts_ = forgets ? stops.count : interrupts_ + stops.count;
  if (interrupts_ > 1) return absl::CancelledError(kInterrupted);
  return screen_->Note("Ctrl-C again or Ctrl-D leaves");
}

absl::Status ChatRepl::TakeLine(absl::string_view line) {
  interrupts_ = 0;
  if (history_ != nullptr) {
    if (const absl::Status added = history_->Add(line); !added.ok()) RETURN_IF_ERROR(screen_->Note(added.message()));
  }
  return TakeInput(reader_.Take(line));
}

absl::Status ChatRepl::TakeInput(absl::StatusOr<std::optional<ChatInput>> input) {
  if (!input.ok()) return Refuse(input.status().message());
  if (!input->has_value()) return absl::OkStatus();
  if ((*input)->command) {
    const absl::StatusOr<ChatCommandCall> call = ParseChatCommand((*input)->text);
    return call.ok() ? Do(*call) : Refuse(call.status().message());
  }
  const Dialogue before = dialogue_;
  dialogue_.AddUser((*input)->text);
  attempt_ = 0;
  return AnswerMessages(before);
}

absl::Status ChatRepl::Refuse(absl::string_view why, bool failed) {
  ++inputs_refused_;
  failed_ = failed_ || failed;
  return screen_->Say(why);
}

absl::Status ChatRepl::Do(const ChatCommandCall& call) {
  switch (call.command) {
    case ChatCommand::kHelp: return screen_->Say(ChatCommandHelp());
    case ChatCommand::kExit: leaving_ = true; return absl::OkStatus();
    case ChatCommand::kClear: dialogue_.Clear(); return screen_->Note("the conversation begins anew");
    case ChatCommand::kSystem: return System(call.argument);
    case ChatCommand::kUndo: return Undo();
    case ChatCommand::kRegenerate: return Regenerate();
    case ChatCommand::kThink: return Think(call.argument);
    case ChatCommand::kSet: return Set(call.argument);
    case ChatCommand::kSave: return Save(call.argument);
    case ChatCommand::kLoad: return Load(call.argument);
    case ChatCommand::kStats: return Stats();
  }
  return absl::OkStatus();
}

absl::Status ChatRepl::System(const std::string& text) {
  if (text.empty()) {
    const std::string system = dialogue_.system();
    return screen_->Say(system.empty() ? "there is no system message; /system TEXT sets one" : system);
  }
  dialogue_.SetSystem(text == "\"\"" ? "" : text);
  return screen_->Note(text == "\"\"" ? "there is no system message any more"
                                      : "the system message is set, from the next answer on");
}

absl::Status ChatRepl::Undo() {
  if (!dialogue_.HasUser()) return Refuse("there is no message to take back");
  dialogue_.TakeBackMessage();
  return screen_->Note(
      absl::StrCat("taken back; ", CountOf(static_cast<int64_t>(dialogue_.size()), "message"), " left"));
}

absl::Status ChatRepl::Regenerate() {
  if (!dialogue_.HasUser()) return Refuse("there is no message to answer");
  if (backend_->AlwaysAnswersAlike()) {
    RETURN_IF_ERROR(screen_->Note("the temperature is 0: the answer will be the same; try /set temp 0.8"));
  }
  const Dialogue before = dialogue_;
  dialogue_.TakeBackAnswer();
  ++attempt_;
  return AnswerMessages(before);
}

absl::Status ChatRepl::Think(const std::string& word) {
  if (word != "on" && word != "off")
    return Refuse(absl::StrCat("/think: expected on or off, found '", CutText(word), "'"));
  thinking_ = word == "on";
  return screen_->Note(absl::StrCat("thinking is ", word, ", where the model's template asks"));
}

absl::Status ChatRepl::Set(const std::string& words) {
  if (words.empty()) return screen_->Say(backend_->Settings());
  const size_t blank = words.find_first_of(" \t\n");
  if (blank == std::string::npos)
    return Refuse(absl::StrCat("/set: '", CutText(words), "' lacks a value: /set NAME VALUE"));
  const std::string name = words.substr(0, blank);
  const absl::string_view value = absl::StripAsciiWhitespace(absl::string_view(words).substr(blank));
  const absl::Status set = backend_->Set(name, value);
  return set.ok() ? screen_->Note(absl::StrCat(name, " is ", value)) : Refuse(absl::StrCat("/set: ", set.message()));
}

absl::Status ChatRepl::Save(const std::string& path) {
  if (dialogue_.size() == 0) return Refuse("/save: there is no message yet");
  const absl::Status saved = WriteWholeFile(path, dialogue_.Text());
  if (!saved.ok()) return Refuse(absl::StrCat("/save: ", saved.message()));
  return screen_->Note(absl::StrCat(CountOf(static_cast<int64_t>(dialogue_.size()), "message"), " in '", path, "'"));
}

absl::Status ChatRepl::Load(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path, kMostDialogueBytes);
  if (!text.ok()) return Refuse(absl::StrCat("/load: ", text.status().message()));
  if (const absl::Status loaded = dialogue_.Load(*text); !loaded.ok()) {
    return Refuse(absl::StrCat("/load: '", path, "': ", loaded.message()));
  }
  attempt_ = 0;
  return screen_->Note(absl::StrCat(CountOf(static_cast<int64_t>(dialogue_.size()), "message"), " from '", path, "'"));
}

absl::Status ChatRepl::Stats() {
  const std::string speed = TokensPerSecond(gaps_, decode_s_);
  std::string text =
      absl::StrCat("model         ", backend_->Name(), "\n", backend_->Describe(), "conversation  ",
                   CountOf(static_cast<int64_t>(dialogue_.size()), "message"), "\n", "answers       ", answers_, ", ",
                   CountedTokens(answer_tokens_, all_counted_), speed.empty() ? "" : ", ", speed, "\n");
  if (answers_ == 0) return screen_->Say(text);
  absl::StrAppend(&text, "last prompt   ", last_.counted ? CountOf(last_.prompt_tokens, "token") : "not counted");
  if (last_.counted && backend_->context_tokens() > 0) {
    absl::StrAppend(&text, " of a context of ", backend_->context_tokens());
  }
  if (last_.cached_tokens.has_value()) absl::StrAppend(&text, ", ", *last_.cached_tokens, " of them cached");
  absl::StrAppend(&text, "\nlast answer   ", AnswerNote(last_));
  return screen_->Say(text);
}

absl::Status ChatRepl::AnswerMessages(const Dialogue& before) {
  ChatTurn turn;
  turn.messages = &dialogue_.messages();
  turn.thinking = thinking_;
  turn.attempt = attempt_;
  const absl::StatusOr<ChatAnswer> answer =
      backend_->Answer(turn, [this](AnswerPart part, absl::string_view text) { return screen_->Show(part, text); });
  RETURN_IF_ERROR(screen_->EndAnswer());
  RETURN_IF_ERROR(answer.status());
  RETURN_IF_ERROR(AfterAnswer(*answer, before));
  SignalWatch& signals = SignalWatch::Get();
  const bool final = signals.terminated() || signals.drain() || (signals.stops() > 0 && !screen_->terminal());
  interrupts_ = signals.ForgetStops().count;
  if (interrupts_ > 0) lines_->Forget();
  return final || interrupts_ > 1 ? absl::CancelledError(kInterrupted) : absl::OkStatus();
}

absl::Status ChatRepl::AfterAnswer(const ChatAnswer& answer, const Dialogue& before) {
  if (answer.tokens > 0) {
    ++answers_;
    answer_tokens_ += answer.tokens;
    all_counted_ = all_counted_ && answer.counted;
    gaps_ += std::max<int64_t>(answer.tokens - 1, 0);
    decode_s_ += answer.decode_s;
    last_ = answer;
  }
  if (!answer.refusal.empty()) {
    dialogue_ = before;
    return Refuse(answer.refusal, answer.failed);
  }
  const bool nothing = answer.content.empty() && answer.reasoning.empty();
  if (nothing && answer.finish_reason == "cancelled") {
    dialogue_ = before;
    return screen_->Note("stopped before anything came; the conversation is as it was before");
  }
  dialogue_.AddAnswer(answer.content, answer.reasoning);
  return screen_->Note(AnswerNote(answer));
}

std::string ChatRepl::AnswerNote(const ChatAnswer& answer) const {
  std::string note = CountedTokens(answer.tokens, answer.counted);
  const std::string speed = TokensPerSecond(answer.tokens - 1, answer.decode_s);
  if (!speed.empty()) absl::StrAppend(&note, ", ", speed);
  if (answer.tokens > 0) absl::StrAppendFormat(&note, ", the first after %.3f s", answer.first_token_s);
  if (answer.cached_tokens.has_value()) {
    absl::StrAppend(&note, ", ", *answer.cached_tokens, " of ", answer.prompt_tokens, " prompt tokens cached");
  }
  if (answer.finish_reason == "length") absl::StrAppend(&note, "; cut at its length");
  if (answer.finish_reason == "cancelled") absl::StrAppend(&note, "; stopped");
  return note;
}

}  // namespace stagecoach
