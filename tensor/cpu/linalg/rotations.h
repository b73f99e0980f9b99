// Plane rotations of the columns of a matrix, kept and applied together.
#pragma once
#include <cmath>
#include <cstdint>

#include "tensor/cpu/linalg/matrices.h"
#include "tensor/cpu/scratch.h"

namespace pg::cpu {

// Turns (y, z) into (r, 0).
template <class T>
struct Rotation {
  T c = 1, s = 0, r = 0;
  Rotation(T y, T z) : r(std::hypot(y, z)) {
    if (r > 0) c = y / r, s = z / r;
  }
};

// Replaces columns i and j by c i + s j and c j - s i.
template <class T>
struct ColumnRotation {
  int32_t i, j;
  T c, s;
};

constexpr int64_t kStripBytes = 256;  // of a column in a strip of rows
// Applies rotations, in their order, to a strip: columns of kStripBytes, one after the other.
void rotate_strip(const ColumnRotation<float>* rotations, int64_t count, float* strip);
void rotate_strip(const ColumnRotation<double>* rotations, int64_t count, double* strip);

// The rotations of the columns of a matrix, or nothing for a null one. They are applied by `apply`, or earlier if they
// are many: strip by strip, so that each strip stays in the cache.
template <class T>
class ColumnRotations {
 public:
  explicit ColumnRotations(Columns<T>* m) : m_(m), most_(m ? 64 * m->cols() : 0) {}

  void add(const Rotation<T>& g, int64_t i, int64_t j) {
    if (!m_) return;
    kept_.push_back({int32_t(i), int32_t(j), g.c, g.s});
    if (int64_t(kept_.size()) >= most_) apply();
  }

  void apply() {
    if (kept_.empty()) return;
    const int64_t rows = m_->rows(), columns = m_->cols(), lanes = kStripBytes / int64_t(sizeof(T));
    strip_.resize(size_t(columns * lanes), T(0));
    for (int64_t first = 0; first < rows; first += lanes) {
      poll_kernel();
      const int64_t count = std::min(lanes, rows - first);
      for (int64_t j = 0; j < columns; ++j) std::copy_n(&(*m_)(first, j), count, &strip_[size_t(j * lanes)]);
      rotate_strip(kept_.data(), int64_t(kept_.size()), strip_.data());
      for (int64_t j = 0; j < columns; ++j) std::copy_n(&strip_[size_t(j * lanes)], count, &(*m_)(first, j));
    }
    kept_.clear();
  }

 private:
  Columns<T>* m_;
  int64_t most_;
  WorkVector<ColumnRotation<T>> kept_;
  WorkVector<T> strip_;
};

}  // namespace pg::cpu
