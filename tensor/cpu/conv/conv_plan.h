// How a direct convolution walks its arrays. The output positions of a group of images are numbered consecutively and
// cut into blocks of kBlockCols. Each block is a list of runs, and each run is contiguous in an input row.
#pragma once
#include <cstdint>
#include <vector>

#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/conv/conv_simd.h"

namespace pg::cpu {

// The runs of all blocks of a group of `images` images.
struct BlockList {
  std::vector<BlockRun> runs;
  std::vector<int64_t> begin;  // index of the first run of each block, then the total number of runs
  int64_t images = 0;
  int32_t piece = 0;  // BlockRuns::piece of all full blocks

  int64_t blocks() const { return static_cast<int64_t>(begin.size()) - 1; }
};

class ConvPlan {
 public:
  // Blocks are `cols` positions wide. A group has `group` images.
  ConvPlan(const ConvShape& s, int64_t cols, int64_t group);

  int64_t depth() const { return static_cast<int64_t>(offsets_.size()); }  // input channels per group times taps
  const int64_t* offsets() const { return offsets_.data(); }  // one per unit of depth, within a padded image
  int64_t group() const { return group_; }
  int64_t groups() const { return (shape_.n + group_ - 1) / group_; }
  int64_t images_of(int64_t group) const;
  // The blocks of one group of images. The last group may be smaller.
  const BlockList& blocks_of(int64_t group) const { return images_of(group) == group_ ? full_ : last_; }
  BlockRuns runs(const BlockList& list, int64_t block) const;

  bool padded() const { return padded_; }
  int64_t padded_plane() const { return dims_[0] * dims_[1] * dims_[2]; }
  int64_t padded_image() const { return shape_.ic * padded_plane(); }
  // pad copies images with a zero border around them; crop copies them back without it.
  template <class T>
  void pad(const T* x, int64_t images, T* out) const;
  template <class T>
  void crop(const T* in, int64_t images, T* x) const;

 private:
  BlockList cut(int64_t images) const;
  int64_t piece_length() const;  // divides the length of every output row; 0 when there is no such length

  ConvShape shape_;
  int64_t cols_, group_;
  std::array<int64_t, 3> dims_;  // of a padded plane
  bool padded_;
  std::vector<int64_t> offsets_;
  BlockList full_, last_;
};

}  // namespace pg::cpu
