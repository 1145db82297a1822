import publication from '../../packaging/publication.json' with { type: 'json' };

/** The names of the packages beside device-agent. Publishing needs the credentials of these names' owner. */
export const CLIENT_PACKAGE = publication.npm.packages.management;
export const AGENT_PACKAGE = publication.npm.packages.agent;
