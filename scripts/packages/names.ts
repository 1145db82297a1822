/** The names of the packages beside device-agent. Publishing needs the credentials of these names' owner. */
export const CLIENT_PACKAGE = '@device-agent/management';
export const AGENT_PACKAGE = '@device-agent/agent';
