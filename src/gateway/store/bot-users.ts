import type { Database } from './sql/database.ts';
import { flag, type RowOf, Table, text } from './sql/table.ts';

const columns = { id: text, created_at: text, name: text, active: flag };

export type BotUserRow = RowOf<typeof columns>;

/** Identities that own authtokens; service users are the same rows under their newer name. */
export const botUsers = (database: Database) => new Table(database, 'bot_users', columns);
