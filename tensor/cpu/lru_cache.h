// A cache of what was prepared for a shape.
#pragma once
#include <cstddef>
#include <list>
#include <string_view>
#include <unordered_map>

namespace pg::cpu {

// A bounded least-recently-used cache, compared by the bytes of its keys. Each thread has its own, so lookups need no
// lock. oneDNN's global cache makes the entry of a second thread cheap.
template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  // Returns the entry of `key`; calls `make` for a new one. If `make` throws, nothing is stored.
  template <class Make>
  Value& get(const Key& key, Make make) {
    const auto bytes = std::string_view(reinterpret_cast<const char*>(&key), sizeof(Key));
    if (auto it = index_.find(bytes); it != index_.end()) {
      order_.splice(order_.begin(), order_, it->second);
      return it->second->value;
    }
    order_.push_front({key, make()});
    Entry& entry = order_.front();
    index_[std::string_view(reinterpret_cast<const char*>(&entry.key), sizeof(Key))] = order_.begin();
    if (order_.size() > capacity_) {
      index_.erase(std::string_view(reinterpret_cast<const char*>(&order_.back().key), sizeof(Key)));
      order_.pop_back();
    }
    return entry.value;
  }

 private:
  struct Entry {
    Key key;
    Value value;
  };
  size_t capacity_;
  std::list<Entry> order_;
  std::unordered_map<std::string_view, typename std::list<Entry>::iterator> index_;
};

}  // namespace pg::cpu
