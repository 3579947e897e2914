// The few requests of S3 that reading a data set takes, answered from a folder: its sub-folders are
// the buckets. HEAD and GET of an object (with ranges), and lists of objects. For test programs
// only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace paceline::data::testing {

class S3Server {
 public:
  explicit S3Server(std::filesystem::path root) : root_(std::move(root)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    PL_CHECK(::bind(listener_, any, size) == 0 && ::listen(listener_, 64) == 0, "a free port");
    PL_CHECK(::getsockname(listener_, any, &size) == 0, "its number");
    port_ = ::ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~S3Server() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    for (auto& t : answers_) t.join();
  }
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  // What comes behind the path of a URI.
  std::string options() const {
    return "?endpoint_override=127.0.0.1:" + std::to_string(port_) +
           "&scheme=http&region=us-east-1";
  }
  // Objects that answer 500 from now on.
  void break_object(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    broken_ = path;
  }
  int requests() const { return requests_.load(); }

 private:
  struct Request {
    std::string method, path, range;
    std::map<std::string, std::string> query;
  };

  static std::string decoded(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '%' && i + 2 < text.size()) {
        out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        out += text[i];
      }
    }
    return out;
  }

  static Request parse(const std::string& head) {
    Request r;
    const auto line = head.substr(0, head.find("\r\n"));
    const auto first = line.find(' ');
    const auto last = line.rfind(' ');
    r.method = line.substr(0, first);
    std::string target = line.substr(first + 1, last - first - 1);
    if (const auto question = target.find('?'); question != std::string::npos) {
      std::string rest = target.substr(question + 1) + "&";
      target.resize(question);
      for (std::size_t at = 0; at < rest.size();) {
        const auto end = rest.find('&', at);
        const std::string pair = rest.substr(at, end - at);
        const auto equals = pair.find('=');
        r.query[pair.substr(0, equals)] =
            equals == std::string::npos ? "" : decoded(pair.substr(equals + 1));
        at = end + 1;
      }
    }
    r.path = decoded(target);
    std::string lower = head;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    constexpr std::string_view kRange = "\r\nrange: bytes=";
    if (const auto at = lower.find(kRange); at != std::string::npos) {
      const auto from = at + kRange.size();
      r.range = lower.substr(from, lower.find("\r\n", from) - from);
    }
    return r;
  }

  void serve() {
    for (;;) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      answers_.emplace_back([this, fd] {
        std::string head;
        std::string part(4096, '\0');
        while (head.find("\r\n\r\n") == std::string::npos) {
          const auto n = ::recv(fd, part.data(), part.size(), 0);
          if (n <= 0) break;
          head.append(part, 0, static_cast<std::size_t>(n));
        }
        if (head.find("\r\n\r\n") != std::string::npos) send_all(fd, answer(parse(head)));
        ::close(fd);
      });
    }
  }

  static void send_all(int fd, const std::string& text) {
    for (std::size_t sent = 0; sent < text.size();) {
      const auto n = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }

  static std::string reply(const std::string& status, std::size_t length, const std::string& more,
                           const std::string& body) {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(length) +
           "\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nETag: \"1\"\r\n" + more +
           "Connection: close\r\n\r\n" + body;
  }

  std::string answer(const Request& r) {
    requests_.fetch_add(1);
    {
      const std::scoped_lock lock(mutex_);
      if (!broken_.empty() && r.path == broken_) return reply("500 Broken", 0, "", "");
    }
    if (r.query.count("list-type") > 0) return list(r);
    const auto file = root_ / r.path.substr(1);
    const bool there = std::filesystem::exists(file);
    if (!there || (r.path.find('/', 1) != std::string::npos && !is_regular_file(file))) {
      return reply("404 Not Found", 0, "", "");
    }
    if (!is_regular_file(file)) return reply("200 OK", 0, "", "");
    std::ifstream stream(file, std::ios::binary);
    std::string all((std::istreambuf_iterator<char>(stream)), {});
    if (r.method == "HEAD") return reply("200 OK", all.size(), "", "");
    if (r.range.empty()) return reply("200 OK", all.size(), "", all);
    const auto dash = r.range.find('-');
    const std::size_t from = std::stoul(r.range.substr(0, dash));
    const std::size_t to =
        std::min<std::size_t>(std::stoul(r.range.substr(dash + 1)), all.size() - 1);
    const std::string part = all.substr(from, to - from + 1);
    return reply("206 Partial Content", part.size(),
                 "Content-Range: bytes " + std::to_string(from) + "-" + std::to_string(to) + "/" +
                     std::to_string(all.size()) + "\r\n",
                 part);
  }

  std::string list(const Request& r) {
    const auto bucket = root_ / r.path.substr(1, r.path.find('/', 1) - 1);
    const auto wanted = r.query.count("prefix") > 0 ? r.query.at("prefix") : "";
    std::string contents;
    int n = 0;
    if (std::filesystem::exists(bucket)) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(bucket)) {
        const std::string key = entry.path().lexically_relative(bucket).generic_string();
        if (!entry.is_regular_file() || !key.starts_with(wanted)) continue;
        ++n;
        contents +=
            "<Contents><Key>" + key +
            "</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>1</ETag><Size>" +
            std::to_string(entry.file_size()) +
            "</Size><StorageClass>STANDARD</StorageClass></Contents>";
      }
    }
    const std::string body =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult "
        "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name><Prefix>" +
        wanted + "</Prefix><KeyCount>" + std::to_string(n) +
        "</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>" + contents +
        "</ListBucketResult>";
    return reply("200 OK", body.size(), "Content-Type: application/xml\r\n", body);
  }

  std::filesystem::path root_;
  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::string broken_;
  std::atomic<int> requests_{0};
  std::thread thread_;
  std::vector<std::thread> answers_;  // of the serving thread, then of the destructor
};

}  // namespace paceline::data::testing
