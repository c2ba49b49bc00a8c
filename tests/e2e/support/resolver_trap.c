// Preloaded into a program and all that it starts: every question to the resolver becomes a line of the file that
// $RESOLVER_TRAP names, "<program> asks for <name>", and is then answered as usual.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void Note(const char* name) {
  const char* path = getenv("RESOLVER_TRAP");
  if (path == NULL) return;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  char line[512];
  const int length = snprintf(line, sizeof(line), "%s asks for %s\n", program_invocation_short_name,
                              name != NULL ? name : "any address");
  if (write(file, line, strlen(line)) != length) abort();
  close(file);
}

int getaddrinfo(const char* node, const char* service, const struct addrinfo* hints, struct addrinfo** list) {
  if (node != NULL && (hints == NULL || (hints->ai_flags & AI_NUMERICHOST) == 0)) Note(node);
  int (*next)(const char*, const char*, const struct addrinfo*, struct addrinfo**);
  *(void**)&next = dlsym(RTLD_NEXT, "getaddrinfo");
  return next(node, service, hints, list);
}

struct hostent* gethostbyname(const char* name) {
  Note(name);
  struct hostent* (*next)(const char*);
  *(void**)&next = dlsym(RTLD_NEXT, "gethostbyname");
  return next(name);
}
