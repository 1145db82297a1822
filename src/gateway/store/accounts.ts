import { BotUser } from '../../management/resources/bot-user.ts';
import { ApiKey, Credential } from '../../management/resources/credential.ts';
import type { Database } from './sql/database.ts';
import type { ListedBy } from './sql/list-choice.ts';
import { blob, columnsOf, json, type RowOf, Table, tableOf } from './sql/table.ts';

const botUserColumns = columnsOf(BotUser);

export type BotUserRow = RowOf<typeof botUserColumns>;

/** Identities that own authtokens; service users are the same rows under their newer name. */
export class BotUsers extends tableOf('bot_users', botUserColumns) {
  /** Whether a bot user exists and is active; true for null, the owner of what has no owner. */
  isActive(id: string | null): boolean {
    return id === null || this.get(id)?.active === true;
  }
}

const apiKeyColumns = { ...columnsOf(ApiKey.omit({ token: true })), secret_hash: blob };

export type ApiKeyRow = RowOf<typeof apiKeyColumns>;

/** API keys; only their hashes are stored. */
export const apiKeysTable = (database: Database) => new Table(database, 'api_keys', apiKeyColumns);

const credentialColumns = { ...columnsOf(Credential.omit({ token: true })), acl: json<string[]>(), secret_hash: blob };

export type CredentialRow = RowOf<typeof credentialColumns>;

export const CREDENTIALS_LISTED_BY: ListedBy = {
  searched: [
    ...['id', 'description', 'metadata', 'acl', 'owner_id'],
    "(SELECT devices.name || ' ' || devices.id FROM devices WHERE devices.credential_id = credentials.id)",
  ],
  sorted: { description: 'lower(description)' },
};

/** Authtokens; only their hashes are stored. */
export class Credentials extends tableOf('credentials', credentialColumns) {
  idsOfOwner(ownerId: string): string[] {
    return this.where('owner_id = ?', [ownerId]).map((row) => row.id);
  }
}
