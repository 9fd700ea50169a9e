/* sbxsvd as a service of systemd's: the protocol of sd_notify(3) on $NOTIFY_SOCKET. Says nothing where there is none. */
#pragma once

void main_notify_ready(void); /* READY=1, after a start, a reload and an upgrade in place */
void main_notify_reloading(void);
void main_notify_stopping(void);
