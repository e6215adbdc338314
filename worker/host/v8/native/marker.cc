#include "marker.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace hop {

bool Marker::Map(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  void* page = mmap(nullptr, sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (page == MAP_FAILED) return false;
  key_ = static_cast<std::atomic<uint32_t>*>(page);
  return true;
}

}  // namespace hop
