#ifndef RADISH_BASE_SERVICE_MANAGER_H
#define RADISH_BASE_SERVICE_MANAGER_H

/* What systemd and its like tell a service through the environment, and are told back. Without a
 * service manager, nothing is passed and nothing is sent. */

/* The number of open sockets that were passed (sd_listen_fds(3)); they are the descriptors from
 * SERVICE_FIRST_FD on. The variables are removed, so that only one caller takes the sockets. */
enum { SERVICE_FIRST_FD = 3 };
int service_take_sockets(void);

/* Sends "READY=1" and the like (sd_notify(3)). */
void service_notify(const char *state);
/* Says that the configuration is being read again; "READY=1" must follow. */
void service_notify_reloading(void);

#endif
