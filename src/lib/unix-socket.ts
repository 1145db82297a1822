/** Longest path of a unix socket in bytes: Linux's `sockaddr_un` without the closing NUL. */
export const MAX_SOCKET_PATH = 107;
