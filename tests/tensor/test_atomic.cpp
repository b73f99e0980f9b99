// At any moment the path has either the old or the new file.
#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tensor/parallel.h"
#include "tests/tensor/files.h"

namespace pg::test {
namespace {

void write_text(const std::string& path, const std::string& text) {
  write_file_atomic(path, [&](FileSink& sink) { sink.write(text); });
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  ::stat(path.c_str(), &info);
  return info.st_mode & 07777;
}

}  // namespace

TEST_CASE("atomic write: writes and replaces files in small and large pieces") {
  Folder folder;
  const std::string path = folder / "f";
  write_text(path, "one");
  CHECK(get(path) == "one");
  const std::string large(300000, 'x');
  write_file_atomic(path, [&](FileSink& sink) {
    for (int i = 0; i < 5; ++i) sink.write("small");
    sink.write(large);
    sink.write("end");
  });
  CHECK(get(path) == "smallsmallsmallsmallsmall" + large + "end");
  CHECK(folder.count() == 1);
}

TEST_CASE("atomic write: an exception of the writer leaves only the old file") {
  Folder folder;
  write_text(folder / "f", "old");
  CHECK_THROWS_AS(write_file_atomic(folder / "f",
                                    [](FileSink& sink) {
                                      sink.write(std::string(200000, 'n'));
                                      throw Error("no more");
                                    }),
                  Error);
  CHECK(get(folder / "f") == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("atomic write: a stop request ends the writing and reading of a large file") {
  Folder folder;
  const std::string large(20 << 20, 'n');
  write_text(folder / "f", "old");
  write_text(folder / "large", large);
  std::atomic<bool> stop{false};
  const PollScope scope(&stop);
  for (const size_t piece : {size_t(1000), large.size()}) {
    CAPTURE(piece);
    stop = false;
    size_t taken = 0;
    CHECK_THROWS_AS(write_file_atomic(folder / "f",
                                      [&](FileSink& sink) {
                                        for (; taken < 20 * large.size(); taken += piece, stop = true)
                                          sink.write(std::string_view(large).substr(0, piece));
                                      }),
                    Cancelled);
    CHECK(taken < 2 * large.size());
    CHECK(get(folder / "f") == "old");
    CHECK(folder.count() == 2);
  }
  CHECK_THROWS_AS(read_file(folder / "large"), Cancelled);
  write_text(folder / "f", "a small file is written all the same");
}

TEST_CASE("atomic write: a full disk is an error that leaves the old file") {
  Folder folder;
  write_text(folder / "f", "old");
  rlimit saved{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &saved) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100000, saved.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string large(300000, 'n');
  const std::string text = error_of([&] { write_text(folder / "f", large); });
  ::setrlimit(RLIMIT_FSIZE, &saved);
  std::signal(SIGXFSZ, handler);
  CHECK(text == "save: " + (folder / "f") + ": cannot write: File too large");
  CHECK(get(folder / "f") == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("atomic write: a process killed while it writes leaves the old file complete") {
  Folder folder;
  NamedTensors content;
  content.tensors = {{"a", sample(DType::kFloat32, {1000})}};
  save_safetensors(folder / "f", content);
  const pid_t child = ::fork();
  if (child == 0) {
    write_file_atomic(folder / "f", [](FileSink& sink) {
      sink.write(std::string(200000, 'n'));
      sink.flush();
      ::kill(::getpid(), SIGKILL);
    });
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(same(load_safetensors(folder / "f").tensors[0].second, content.tensors[0].second));
}

TEST_CASE("atomic write: a process killed at any time leaves the old or the new file") {
  Folder folder;
  const std::string path = folder / "f", a(50000, 'a'), b(70000, 'b');
  write_text(path, a);
  for (int round = 0; round < 10; ++round) {
    int written[2];
    REQUIRE(::pipe(written) == 0);
    const pid_t child = ::fork();
    if (child == 0)
      for (bool second = true; ::write(written[1], "x", 1) == 1; second = !second) write_text(path, second ? b : a);
    char byte;
    for (int i = 0; i <= round; ++i) REQUIRE(::read(written[0], &byte, 1) == 1);
    ::kill(child, SIGKILL);  // while it writes some file
    ::waitpid(child, nullptr, 0);
    ::close(written[0]);
    ::close(written[1]);
    const std::string now = get(path);
    CHECK((now == a || now == b));
  }
}

namespace {

// Returns when the child has written part of a file. The child then waits to be killed.
pid_t start_half_written(const std::string& path) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    write_file_atomic(path, [&](FileSink& sink) {
      sink.write(std::string(200000, 'n'));
      sink.flush();
      if (::write(ready[1], "x", 1) == 1)
        for (;;) ::pause();
    });
    ::_exit(0);
  }
  char byte;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

void kill_child(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace

TEST_CASE("atomic write: the next write removes temporary files of killed processes only") {
  for (const std::string& name : {std::string("f"), std::string(255, 'n')}) {
    CAPTURE(name);
    Folder folder;
    const std::string path = folder / name, sibling = folder / (name.substr(0, 150) + "-2");
    const pid_t dead[] = {start_half_written(path), start_half_written(path), start_half_written(path)};
    const pid_t live = start_half_written(path), other = start_half_written(sibling);
    for (const pid_t child : dead) kill_child(child);
    kill_child(other);
    CHECK(folder.count() == 5);
    write_text(path, "new");
    CHECK(folder.count() == 3);  // the file, the temporary file of a live process, the sibling's
    kill_child(live);
    write_text(path, "newer");
    CHECK(folder.count() == 2);
    write_text(sibling, "x");
    CHECK(folder.count() == 2);
    CHECK(get(path) == "newer");
  }
}

TEST_CASE("atomic write: only temporary files of the target are removed") {
  Folder folder;
  for (const char* name : {".f.tmp", ".f.1.2.tmp.txt", ".f.a.1.tmp", ".g.1.1.tmp", "f.1.1.tmp", ".f.x.1.1.tmp"})
    write_text(folder / name, "mine");
  fs::create_directory(folder / ".f.1.7.tmp");
  fs::create_symlink("absent", folder / ".f.1.8.tmp");
  const auto before = folder.count();
  write_text(folder / "f", "x");
  CHECK(folder.count() == before + 1);
}

TEST_CASE("atomic write: links and modes are kept, and only regular files are written") {
  Folder folder;
  write_text(folder / "real", "old");
  ::chmod((folder / "real").c_str(), 0640);
  fs::create_symlink("real", folder / "link");
  write_text(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(get(folder / "real") == "new");
  CHECK(mode_of(folder / "real") == 0640);

  fs::create_symlink("fresh", folder / "dangling");
  write_text(folder / "dangling", "x");
  CHECK(get(folder / "fresh") == "x");
  const mode_t mask = ::umask(027);
  write_text(folder / "masked", "x");
  ::umask(mask);
  CHECK(mode_of(folder / "masked") == 0640);

  const auto error = [](const std::string& path) { return error_of([&] { write_text(path, "x"); }); };
  fs::create_directory(folder / "d");
  CHECK(contains(error(folder / "d"), "Is a directory"));
  CHECK(contains(error(folder / "d/"), "Is a directory"));
  CHECK(contains(error(folder / "absent/f"), "No such file or directory"));
  CHECK(contains(error(folder / "real/f"), "Not a directory"));
  ::mkfifo((folder / "pipe").c_str(), 0600);
  CHECK(contains(error(folder / "pipe"), "not a regular file"));
  fs::create_symlink("loop", folder / "loop");
  CHECK(contains(error(folder / "loop"), "symbolic links"));
  CHECK(contains(error(std::string("a\0b", 3)), "zero byte"));
  CHECK(!error("").empty());
  CHECK(!error(folder / std::string(300, 'n')).empty());
}

}  // namespace pg::test
