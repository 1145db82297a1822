import type { SecretsBox } from '../../lib/secrets-box.ts';
import type { Database } from './sql/database.ts';
import { annotatedColumns, blob, nullable, type RowOf, Table, text } from './sql/table.ts';

/** Who made and last changed a row: API keys. */
const changeColumns = { updated_at: text, created_by: nullable(text), last_updated_by: nullable(text) };

const secretColumns = { ...annotatedColumns, ...changeColumns, name: text, vault_id: text, value: blob };

export type SecretRow = RowOf<typeof secretColumns>;

/** The values of vaults, encrypted at rest. */
export class VaultSecrets extends Table<typeof secretColumns> {
  constructor(
    database: Database,
    private readonly box: SecretsBox,
  ) {
    super(database, 'vault_secrets', secretColumns);
  }

  /** A page of one vault's secrets, newest first. */
  pageOf(vaultId: string, before: string | null, limit: number): SecretRow[] {
    return this.where('vault_id = ? AND id < ? ORDER BY id DESC LIMIT ?', [vaultId, before ?? '~', limit]);
  }

  seal(value: string, id: string): Buffer {
    return this.box.seal(value, id);
  }

  /** @returns null when the vault has no such secret, or it cannot be decrypted */
  read(vaultId: string, name: string): string | null {
    const row = this.where('vault_id = ? AND name = ?', [vaultId, name])[0];
    return row && this.box.opens(row.value, row.id) ? this.box.open(row.value, row.id) : null;
  }

  /** Names of those that were encrypted with another encryption key. */
  sealedOtherwise(): string[] {
    return this.where('id > ?', ['']).flatMap(({ id, name, value }) => (this.box.opens(value, id) ? [] : name));
  }
}
