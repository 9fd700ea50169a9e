/* Connecting a socket that was made inside an app's namespace to the app's port on its loopback. */
#pragma once
#include "policy/policy.h"

/* The client's address as the app may see it; family 0 when it is loopback. v4-mapped becomes v4. */
void inner_peer(const struct sockaddr_storage *peer, struct addr *ret);
enum { INNER_NO_ADDRESS = -1 }; /* the client's address cannot be used inside: never fall back to loopback */
/* sock: of family sock_family. Binds `peer` (or a stand-in of the right family) unless its family is 0, and
 * connects to 127.0.0.1 (family AF_INET) or ::1. Returns 0, EINPROGRESS, an errno, or INNER_NO_ADDRESS. After
 * ECONNREFUSED the socket can be used again for the same family. */
int inner_connect(int sock, int sock_family, int family, const struct addr *peer, uint16_t port);
int inner_connect_result(int sock); /* when it became writable: 0, EINPROGRESS, or an errno */
