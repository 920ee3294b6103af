// KenLM's lm/builder/count_ngrams_main.cc with plain arguments, because Boost.Program_options
// needs a compiled library: count_ngrams ORDER BYTES_OF_RAM TEMPORARY_PREFIX VOCABULARY_FILE
#include "lm/builder/combine_counts.hh"
#include "lm/builder/corpus_count.hh"
#include "lm/common/compare.hh"
#include "util/file.hh"
#include "util/file_piece.hh"
#include "util/stream/chain.hh"
#include "util/stream/io.hh"
#include "util/stream/sort.hh"

#include <cstdlib>
#include <string>
#include <vector>

int main(int, char *argv[]) {
  const unsigned order = std::atoi(argv[1]);
  const std::size_t ram = std::strtoull(argv[2], nullptr, 10);
  util::scoped_fd vocabulary(util::CreateOrThrow(argv[4]));

  // From here on as in count_ngrams_main.cc.
  std::size_t blocks = 2;
  std::size_t memory_for_chain =
      static_cast<float>(ram) /
      (static_cast<float>(blocks) + lm::builder::CorpusCount::DedupeMultiplier(order)) *
      static_cast<float>(blocks);
  util::stream::Chain chain(util::stream::ChainConfig(
      lm::NGram<uint64_t>::TotalSize(order), blocks, memory_for_chain));
  util::FilePiece text(0, NULL, NULL);
  uint64_t token_count = 0;
  lm::WordIndex type_count = 0;
  std::vector<bool> prune;
  std::string prune_file;
  lm::builder::CorpusCount counter(text, vocabulary.get(), true, token_count, type_count, prune,
                                   prune_file, chain.BlockSize() / chain.EntrySize(),
                                   lm::THROW_UP);
  chain >> boost::ref(counter);

  util::stream::SortConfig sort_config;
  sort_config.temp_prefix = argv[3];
  sort_config.buffer_size = 64 * 1024 * 1024;
  sort_config.total_memory = ram;
  util::stream::Sort<lm::SuffixOrder, lm::builder::CombineCounts> sorted(
      chain, sort_config, lm::SuffixOrder(order), lm::builder::CombineCounts());
  chain.Wait(true);
  util::stream::Chain output(util::stream::ChainConfig(
      lm::NGram<uint64_t>::TotalSize(order), blocks, sort_config.buffer_size));
  sorted.Output(output);
  output >> util::stream::WriteAndRecycle(1);
  output.Wait(true);
  return 0;
}
