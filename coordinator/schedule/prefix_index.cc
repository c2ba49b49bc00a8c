#include "coordinator/schedule/prefix_index.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/counter_rng.h"

namespace stagecoach {
namespace {

constexpr uint64_t kRoot = 0x9e3779b97f4a7c15ull;

}  // namespace

uint64_t PrefixRootHash(absl::string_view salt) {
  uint64_t hash = MixBits(kRoot + salt.size());
  for (const char byte : salt) hash = MixBits(hash * 31 + static_cast<uint8_t>(byte) + 1);
  return hash;
}

uint64_t PrefixHash(uint64_t parent_hash, absl::Span<const TokenId> tokens) {
  uint64_t hash = MixBits(parent_hash + kRoot);
  for (const TokenId token : tokens) hash = MixBits(hash * 31 + static_cast<uint32_t>(token) + 1);
  return hash;
}

PrefixRef PrefixIndex::Find(const PrefixKey& key) const {
  const auto found = by_hash_.find(key.hash);
  if (found == by_hash_.end()) return {};
  const Entry& entry = *entries_[found->second];
  if (entry.parent != key.parent || (!key.parent.exists() && entry.salt != key.salt)) return {};
  if (!std::equal(entry.tokens.begin(), entry.tokens.end(), key.tokens.begin(), key.tokens.end())) return {};
  return {found->second, entry.number};
}

PrefixRef PrefixIndex::Insert(const PrefixKey& key, absl::Span<const BlockId> blocks) {
  const BlockId block = blocks[anchor_];
  CHECK(!Has(block));
  if (entries_[block] == nullptr) entries_[block] = std::make_unique<Entry>();
  Entry& entry = *entries_[block];
  entry.number = next_number_++;
  entry.hash = key.hash;
  entry.parent = key.parent;
  entry.salt = key.parent.exists() ? std::string() : std::string(key.salt);
  entry.tokens.assign(key.tokens.begin(), key.tokens.end());
  entry.blocks.assign(blocks.begin(), blocks.end());
  by_hash_[key.hash] = block;
  ++size_;
  return {block, entry.number};
}

void PrefixIndex::Remove(BlockId block) {
  CHECK(Has(block));
  RemoveFromRow(block);
  Entry& entry = *entries_[block];
  const auto found = by_hash_.find(entry.hash);
  if (found != by_hash_.end() && found->second == block) by_hash_.erase(found);
  entry.number = 0;
  --size_;
}

absl::Status PrefixIndex::CheckIntegrity() const {
  const auto violation = [](BlockId block, const auto&... what) {
    return absl::InternalError(absl::StrCat("the prefix cache's entry of block ", block, " ", what...));
  };
  std::vector<bool> passed(entries_.size(), false);
  int32_t row = 0;
  for (const BlockId block : row_.List()) {
    if (!Has(block) || !IsInRow(block) || passed[block]) {
      return violation(block, "is in the row of those without references, but not as it must be");
    }
    passed[block] = true;
    const PrefixRef parent = entries_[block]->parent;
    if (parent.exists() && !Holds(parent)) return violation(block, "follows one that is gone");
    if (parent.exists() && passed[parent.block]) return violation(block, "would be given up after the one it follows");
    ++row;
  }
  const auto entries = std::count_if(entries_.begin(), entries_.end(),
                                     [](const auto& entry) { return entry != nullptr && entry->number != 0; });
  if (row != row_.size() || entries != size_) {
    return absl::InternalError(absl::StrCat("the prefix cache counts ", size_, " entries, ", row_.size(),
                                            " of them without references; there are ", entries, " and ", row));
  }
  for (const auto& [hash, block] : by_hash_) {
    if (!Has(block) || entries_[block]->hash != hash) return violation(block, "is found under the wrong hash");
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
