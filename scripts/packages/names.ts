/** The name of the management client's package. Publishing needs the credentials of its owner. */
export const CLIENT_PACKAGE = '@device-agent/management';
