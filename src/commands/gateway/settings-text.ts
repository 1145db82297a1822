import { existsSync, readFileSync } from 'node:fs';
import { writeDurably } from '../../lib/files/durable-write.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { VARIABLES } from '../../settings/variables.ts';

export interface InitialSetting {
  name: string;
  value: string;
  comment?: string;
}

/** Settings of the gateway in an environment, which the next shell and the service do not have. */
export function settingsIn(env: NodeJS.ProcessEnv, isService: boolean): Record<string, string> {
  // The unit decides where the data of the service are.
  const isOurs = (name: string) =>
    /^(GATEWAY_.*|LOG_LEVEL|LOG_FORMAT)$/.test(name) || (name === 'DATA_DIR' && !isService);
  const entries = Object.keys(VARIABLES).map((name): [string, string] => [name, env[name] ?? '']);
  return Object.fromEntries(entries.filter(([name, value]) => value !== '' && isOurs(name)));
}

/** The settings as lines of `.env` for a backup, without the encryption key. */
export function settingsForBackup({ texts }: Pick<GatewayServerSettings, 'texts'>): string {
  const { GATEWAY_ENCRYPTION_KEY: _key, ...others } = settingsIn(texts, true);
  return settingLines(Object.entries(others).map(([name, value]) => ({ name, value })));
}

export function settingLines(settings: readonly InitialSetting[]): string {
  return settings
    .map(({ comment, ...setting }) => `${comment ? `# ${comment}\n` : ''}${settingLine(setting)}\n`)
    .join('');
}

/** What dotenv and systemd read as that value. */
function settingLine({ name, value }: InitialSetting): string {
  if (/^[\w.,:;/@%+=*?&~[\]-]*$/.test(value)) return `${name}=${value}`;
  const mark = value.includes("'") ? '"' : "'";
  return `${name}=${mark}${value}${mark}`;
}

/** Writes settings to a file, in place of those with the same name. */
export async function addSettings(settings: readonly InitialSetting[], file: string, mode: number): Promise<void> {
  const before = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
  const names = settings.map(({ name }) => name).join('|');
  const isReplaced = new RegExp(`^\\s*(?:export\\s+)?(?:${names})\\s*=`);
  const kept = before
    .filter((line) => !isReplaced.test(line))
    .join('\n')
    .replace(/\n*$/, '\n')
    .replace(/^\n$/, '');
  // As the secrets of the environment may be among them, the mode of an existing file does not stay.
  await writeDurably(file, `${kept}${settingLines(settings)}`, mode);
}
