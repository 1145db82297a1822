import { caReport, retireCa, rotateCa } from '../../gateway/offline/command-store.ts';
import { requireCaEverywhere } from '../../gateway/offline/shared-database.ts';
import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { printable } from '../../lib/terminal-text.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, table } from '../output.ts';
import { becomeGatewayOwner, withStore } from '../settings-place.ts';

/** Prints the gateway's own CAs, and which devices do not trust the next one yet. */
export async function listCas(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  await withStore(settings, (store) => show(caReport(settings, store), json));
}

/** Begins a change of the CA, also while the gateway runs. @throws {OperatorError} exit code 2 for an invalid time */
export async function rotateCas(
  settings: GatewayServerSettings,
  { until, json }: { until?: string; json?: boolean },
): Promise<void> {
  const endsAt = until === undefined ? undefined : endOf(until);
  await becomeGatewayOwner(settings);
  await withStore(settings, async (store) => {
    await requireCaEverywhere(settings, store);
    const isNew = await rotateCa(settings, store, endsAt);
    show(caReport(settings, store), json);
    if (json) return;
    note(isNew ? 'Both CAs are trusted from now on; devices follow within a day.' : 'This change was begun before.');
  });
}

/** Ends the present CA, also while the gateway runs. @throws {OperatorError} when devices would be lost */
export async function retireCas(
  settings: GatewayServerSettings,
  { loseDevices = false, json }: { loseDevices?: boolean; json?: boolean },
): Promise<void> {
  await becomeGatewayOwner(settings);
  await withStore(settings, async (store) => {
    await requireCaEverywhere(settings, store);
    show(await retireCa(settings, store, loseDevices), json);
    if (!json) note('The old CA has ended. Give clients that used it the new ca.pem.');
  });
}

function endOf(text: string): string | null {
  if (text === 'never') return null;
  const at = Date.parse(text);
  if (Number.isNaN(at) || at <= Date.now())
    throw new OperatorError('--until: not a future time; give one such as 2027-06-01, or never', 2);
  return new Date(at).toISOString();
}

/** So many names on a terminal. */
const MAX_NAMES = 20;

/** Prints the report. */
function show({ cas, change }: ReturnType<typeof caReport>, json: boolean | undefined): void {
  if (json) return void print(jsonText({ cas, change }));
  const rows = cas.map(({ id, state, valid_until, fingerprint }) => [id, state, valid_until, fingerprint]);
  print(table(['ID', 'STATE', 'VALID UNTIL', 'SHA-256'], rows));
  if (change === null) return;
  const { since, ends_at, followed, missing } = change;
  note(
    `Changed since ${since}; the present CA ends ${ends_at === null ? `by: ${ownCommand('gateway ca retire')}` : `at ${ends_at}`}`,
  );
  note(`Devices that trust the next CA: ${followed}; that do not yet: ${missing.length}`);
  for (const name of missing.slice(0, MAX_NAMES)) print(printable(`  ${name}`));
  if (missing.length > MAX_NAMES) note(`  and ${missing.length - MAX_NAMES} more: add --json`);
}
