import { keyState, replaceLostKey, rotateKey } from '../../gateway/offline/backups.ts';
import { OperatorError } from '../../lib/errors.ts';
import { openDataFolder } from '../../lib/files/data-folder.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, table } from '../output.ts';
import { becomeGatewayOwner } from '../settings-place.ts';

/** Prints the encryption keys that this gateway knows, without their values. */
export async function listKeys(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  const { current, others, undecryptable } = await keyState(settings);
  if (json) return print(jsonText({ current, others, undecryptable }));
  print(
    table(
      ['ID', 'STATE'],
      [[current, undecryptable?.isForeignKey ? 'wrong' : 'in use'], ...others.map((id) => [id, 'known'])],
    ),
  );
  if (undecryptable !== null) noteLost(undecryptable);
}

/** Changes the encryption key, also while the gateway runs. @throws {OperatorError} saying what to do first */
export async function rotateKeys(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  await becomeGatewayOwner(settings);
  const { id, values, kept } = await rotateKey(settings);
  if (json) return print(jsonText({ id, values, kept }));
  note(
    values === null
      ? `The key ${id} is in use already.`
      : `The key ${id} is in use; encrypted again: ${values} values.`,
  );
  if (kept !== null)
    note(`The one before is in ${kept}: older backups need it. Keep it apart from them, or delete it.`);
  else note('Now set GATEWAY_ENCRYPTION_KEY to this key alone on each gateway; older backups need the one before.');
  note('People sign in again, at the dashboard and at tunnels.');
}

/** Has a stopped gateway go on without the key that it has lost. @throws {OperatorError} when a gateway runs */
export async function replaceLost(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  await becomeGatewayOwner(settings);
  const folder = await openDataFolder(settings.dataDir);
  try {
    if (folder.unwritable !== null) throw new OperatorError(folder.unwritable);
    const lost = await replaceLostKey(settings);
    if (json) return print(jsonText({ lost }));
    if (lost === null) return note('The encryption key is the right one: nothing was changed.');
    noteLost(lost);
    note('Start the gateway: it orders its automatic certificates again.');
  } finally {
    await folder.release();
  }
}

type Lost = NonNullable<Awaited<ReturnType<typeof keyState>>['undecryptable']>;

function noteLost({ isForeignKey, certificates, vaultValues, destinations }: Lost): void {
  if (isForeignKey)
    note(
      `The key is not the one of the database. If that is lost for good: ${ownCommand('gateway keys replace-lost')}`,
    );
  const rows = [
    ...certificates.map((name) => ['certificate', name]),
    ...vaultValues.map((name) => ['secret of a vault', name]),
    ...destinations.map((name) => ['destination of events', name]),
  ];
  if (rows.length === 0) return;
  note('Not decrypted by the key, so to be uploaded or set again, but for automatic certificates:');
  print(table(['WHAT', 'NAME'], rows));
}
