/** Maximum length of a unix socket's path in bytes: Linux's `sockaddr_un` without the final NUL. */
export const MAX_SOCKET_PATH = 107;
