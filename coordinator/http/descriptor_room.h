#ifndef STAGECOACH_COORDINATOR_HTTP_DESCRIPTOR_ROOM_H_
#define STAGECOACH_COORDINATOR_HTTP_DESCRIPTOR_ROOM_H_

namespace stagecoach {

// So many further descriptors a server leaves to those whom it refuses, and to all else that its process has open.
inline constexpr int kOtherDescriptors = 300;

// How many of `wanted` connections this process has descriptors for, at least 1. Raises the soft limit of open files as
// far as they need it: the usual 1024 would be used up before a server that takes 1024 connections knows that it is
// full.
int DescriptorRoom(int wanted);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_DESCRIPTOR_ROOM_H_
