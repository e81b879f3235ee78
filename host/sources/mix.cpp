#include <algorithm>
#include <numeric>

#include "host/base/random.hpp"
#include "host/sources/stream.hpp"

namespace galley {
namespace {

constexpr uint64_t kBlock = 4096;

/// kBlock rows shared out by weight: the whole parts, then the largest remainders; whatever has a weight gets a row.
std::vector<uint64_t> share_out(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> shares;
  std::vector<std::pair<double, size_t>> remainders;
  uint64_t left = kBlock;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / sum * static_cast<double>(kBlock);
    const uint64_t share = weights[i] > 0 ? std::max<uint64_t>(1, static_cast<uint64_t>(exact)) : 0;
    shares.push_back(std::min(share, left));
    left -= shares.back();
    remainders.emplace_back(static_cast<double>(share) - exact, i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; left > 0; ++i, --left) ++shares[remainders[i % remainders.size()].second];
  return shares;
}

class Mix final : public RowStream {
 public:
  Mix(std::vector<std::unique_ptr<RowStream>> streams, const std::vector<double>& weights, uint64_t seed)
      : streams_(std::move(streams)), shares_(share_out(weights)), seed_(seed) {}

  // Until each stream has been through once.
  uint64_t epoch() const override {
    uint64_t rows = 1;
    for (size_t i = 0; i < streams_.size(); ++i)
      if (shares_[i] > 0) rows = std::max(rows, (streams_[i]->epoch() * kBlock + shares_[i] - 1) / shares_[i]);
    return rows;
  }
  Status write(uint64_t row, const BatchRow& out) const override {
    const auto [stream, its] = place(row);
    return streams_[stream]->write(its, out);
  }
  Result<uint64_t> counted(uint64_t row) const override {
    const auto [stream, its] = place(row);
    return streams_[stream]->counted(its);
  }
  uint64_t validation_rows() const override {
    uint64_t rows = 0;
    for (const auto& stream : streams_) rows += stream->validation_rows();
    return rows;
  }
  Status write_validation(uint64_t row, const BatchRow& out) const override {
    size_t i = 0;
    while (row >= streams_[i]->validation_rows()) row -= streams_[i++]->validation_rows();
    return streams_[i]->write_validation(row, out);
  }
  uint64_t fingerprint() const override {
    uint64_t hash = kBlock;
    for (size_t i = 0; i < streams_.size(); ++i) hash = bits64(galley_philox(hash, streams_[i]->fingerprint(), shares_[i]), 0);
    return hash;
  }
  std::vector<DataReport> reports() const override {
    std::vector<DataReport> out;
    for (const auto& stream : streams_)
      for (DataReport& report : stream->reports()) out.push_back(std::move(report));
    return out;
  }
  std::vector<DataFile> files() const override {
    std::vector<DataFile> out;
    for (const auto& stream : streams_)
      for (DataFile& file : stream->files()) out.push_back(std::move(file));
    return out;
  }

 private:
  // Each block is shuffled by itself; in it a stream's rows go on where they ended in the block before.
  std::pair<size_t, uint64_t> place(uint64_t row) const {
    const uint64_t block = row / kBlock;
    const Permutation shuffle(kBlock, bits64(galley_philox(seed_, galley_name_hash("data.mix"), block), 0));
    uint64_t at = shuffle(row % kBlock);
    size_t i = 0;
    while (at >= shares_[i]) at -= shares_[i++];
    return {i, block * shares_[i] + at};
  }

  std::vector<std::unique_ptr<RowStream>> streams_;
  std::vector<uint64_t> shares_;
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<RowStream> mix_streams(std::vector<std::unique_ptr<RowStream>> streams, const std::vector<double>& weights, uint64_t seed) {
  return std::make_unique<Mix>(std::move(streams), weights, seed);
}

}  // namespace galley
