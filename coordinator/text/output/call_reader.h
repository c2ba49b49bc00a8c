#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_READER_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_READER_H_

// Reads calls while a model writes them: what all formats have in common.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/text/output/call_scanner.h"
#include "coordinator/text/output/output_parser.h"
#include "coordinator/text/output/value_reader.h"

namespace stagecoach {

// Reads a block: text that begins with a marker of calls and holds one call or more, to the end of its markers. A
// machine of a few states; a format says how a call's head, a further argument and a call's tail are written
// (call_readers.cc).
//   Steps    Each reads a piece, as CallScanner says, and gives out what that makes certain. Every byte is read about
//            once.
//   Trial    Nothing of a call's first kTrialBytes is released before they are read or the call is complete, and a call
//            that breaks within them is none. The first call's bytes count from the block's first marker, those of a
//            further one from the end of the call before.
//   Release  What was given out, and the text up to where that was. Later text is kept: it is what remains of a call
//            that breaks.
//   Cuts     How the text is cut makes no difference: steps see no text beyond the trial until that is over, none
//            beyond the end of a call until that is released, and never more than kMostCallBytes.
class CallReader {
 public:
  // `end_mark`: what may stand behind a call; empty: nothing. Both outlive this.
  CallReader(const OutputTools& tools, absl::string_view end_mark) : tools_(tools), end_mark_(end_mark) {}
  virtual ~CallReader() = default;
  CallReader(const CallReader&) = delete;
  CallReader& operator=(const CallReader&) = delete;

  enum class State {
    kMore,  // the text ends too early, or something is to be released first
    kDone,  // the block ends at position()
    kBad,   // it breaks at position()
  };
  // `text`: what was not released, and more of it each time. Not to be called after kDone and kBad.
  State Read(absl::string_view text, bool at_end);
  // Appends what may leave, and returns how many bytes of the text that was; after kDone all that were read.
  size_t Release(std::vector<OutputDelta>* deltas);

  size_t position() const { return in_.position(); }    // in the text that was not released
  bool in_call() const { return open_ && !in_trial_; }  // a call has been released, but for its end
  uint64_t scanned_bytes() const { return in_.scanned_bytes(); }

 protected:
  // Each reads on from where the last step ended, a bounded number of bytes, and is called again if there were too few.
  virtual void ReadHead() = 0;    // up to the arguments: ends with one of Begin...()
  virtual void ReadArgument() {}  // after BeginTags(): ends with BeginText() or EndTags()
  virtual void ReadTail();        // behind a call: ends with NextHead() or Finish(). Reads `end_mark`

  // They do nothing once reading has starved or failed.
  void BeginObject(absl::string_view name, absl::string_view id);  // an object of JSON follows
  // The rest of an object, up to `close`.
  void BeginInside(absl::string_view name, ValueReader::Language language, char close);
  void BeginTags(absl::string_view name);
  // A value up to one of `ends`, which live as long as this. is_text: a string, else what it looks like.
  void BeginText(absl::string_view key, bool is_text, absl::Span<const absl::string_view> ends);
  void EndTags();
  void BeginJson(bool in_list);  // {"name": "F", "arguments": {...}}, with commas between them up to "]" in a list
  void EndCall();
  void NextHead() { Go(At::kHead); }
  void Finish() { Go(At::kDone); }

  bool SchemaSaysText(absl::string_view key) const;  // of an argument of the call that is being read
  // A call is open and may still turn out to be none.
  bool in_doubt() const { return open_ && in_trial_; }

  CallScanner in_;
  // The call is all of the message, and of a function of the request. Else the message is an answer, which may be in
  // JSON too and has to leave soon. ReadTail() ends a call that is still in doubt.
  bool is_message_ = false;

 private:
  enum class At {
    kHead,
    kObject,  // in the arguments
    kText,    // in a tag's value
    kJsonKey,
    kJsonValue,
    kTail,
    kDone,
    // Any white space may come here.
    kArgument,    // between tags
    kJsonCall,    // before the object of a call
    kJsonMember,  // before a key of it
    kJsonColon,
    kJsonAfter,  // a member
    kJsonNext,   // behind a call of a list
  };
  // The first name and the first arguments count.
  enum class Member { kOther, kName, kId, kArguments, kArgumentsAsText };
  struct JsonCall {
    Member member = Member::kOther;  // that is being read
    bool has_members = false;
    bool has_name = false;
    bool has_arguments = false;  // and all of them
    std::string id;
    std::string arguments;  // that wait for the name
  };

  void Go(At at) {
    if (in_.ok()) at_ = at;
  }
  void Step();
  void StepObject();
  std::string StepValue();  // empty where it starved or failed
  void StepText();
  void StepJson();
  void StepJsonKey();
  void BeginJsonValue();
  void StepJsonValue();
  void EndJsonMember();
  void PutJsonArguments();
  void EndJsonCall();
  Member MemberOf(absl::string_view key) const;

  void StartCall(absl::string_view name, absl::string_view id);
  void Put(absl::string_view arguments);
  void EndArguments();

  const OutputTools& tools_;
  const absl::string_view end_mark_;
  At at_ = At::kHead;
  bool in_trial_ = true;
  bool open_ = false;        // a call has started and not ended
  bool call_ended_ = false;  // since the last release
  bool settles_ = false;     // in this step
  size_t settled_ = 0;       // bytes of the text: what has been given out, or is no part of what may be left of a call
  std::vector<OutputDelta> deltas_;

  ValueReader value_;
  std::string text_;  // kText, kJsonKey, kJsonValue: of a value that is needed as a whole
  // Tags.
  std::string name_;
  bool has_arguments_ = false;
  bool is_text_ = false;
  absl::Span<const absl::string_view> ends_;
  // JSON.
  bool in_list_ = false;
  JsonCall json_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_CALL_READER_H_
