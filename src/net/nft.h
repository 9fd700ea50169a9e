/*
 * The nf_tables rules of an app's network namespace: the first packet of every TCP connection that does not
 * stay on loopback goes to our transparent listeners.
 *
 * Raw netlink messages, put together with libmnl in a buffer of the caller: two tables do not need libnftnl,
 * whose objects live on the heap, and this runs in the launching child.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { NFT_BATCH_MAX = 4096 };

/* Writes the batch (begin, for each family table, chain and rule, end) and returns its length. `buf` is
 * aligned for a struct nlmsghdr. Pure. */
size_t nft_tproxy_batch(char buf[NFT_BATCH_MAX], bool v6);
/* Puts the rules in force, all or none. 0, or -1 with errno as the kernel gave it. */
int nft_tproxy(bool v6);
