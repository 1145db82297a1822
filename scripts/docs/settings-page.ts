import { GENERIC, PREFIX } from '../../src/settings/settings-file.ts';
import { SETTING_GROUPS } from '../../src/settings/variables.ts';
import { GENERATED, table, wrap } from './markdown.ts';

/** docs/settings.md: every setting by group. */
export function settingsPage(): string {
  const groups = SETTING_GROUPS.map(({ title, usedBy, variables }) => {
    const rows = Object.entries(variables).map(([name, { meaning, default: value, otherwise, allowed }]) => {
      return [`\`${name}\``, value === null ? (otherwise ?? '–') : `\`${value}\``, meaning, allowed];
    });
    return [
      `## ${title}`,
      '',
      `Used by: ${usedBy}.`,
      '',
      table(['Setting', 'Default', 'Meaning', 'Allowed'], rows),
    ].join('\n');
  });
  return `${INTRODUCTION}\n\n${groups.join('\n\n')}\n`;
}

const INTRODUCTION = `# Settings

${GENERATED}

Settings are environment variables. An empty value counts as not set. Relative paths are relative to the current folder.
Values come from four sources; the first one that sets a variable wins:

1. the file that \`SETTINGS_FILE\` names (the service's is \`/etc/device-agent/settings.env\`)
2. the environment
3. \`.env\` in the current folder
4. systemd credentials (\`ngrok-authtoken\`)

A secret and its \`…_FILE\` variant are one setting: set only one of them. A wrong value stops the start with exit code 2
and a message that names the variable, and its line in \`.env\`. Unrecognised settings and malformed lines in the files are logged.

## A .env of another program

The current folder may be a project's. A \`.env\` belongs to this program when it sets nothing but settings of this page, and
mentions, at least as a comment, one that no other program has. In any other \`.env\`:

- Names that begin with \`AGENT_\`, \`GATEWAY_\`, \`NGROK_\` or \`MANAGEMENT_API_\` count.
- ${GENERIC.map((name) => `\`${name}\``).join(', ')} do not count. Write them with the prefix \`${PREFIX}\`, such as
  \`${PREFIX}LOG_LEVEL=debug\`. The log of the agent and \`doctor\` name each such line. The prefix works in every source, and
  counts more than the plain name there.
- \`DATA_DIR\` counts all the same if that folder has data of this program already.
- \`NGROK_SERVER_ADDR\` and \`MANAGEMENT_API_URL\` are refused when the authtoken or API key that is sent there comes from
  elsewhere, as is an \`AGENT_HOST\` other than \`127.0.0.1\`, \`0.0.0.0\` and the like: a cloned repository could collect your secrets.

The agent logs which settings it has read from \`.env\`. In the folder of a project that you do not trust, look at this line: its
\`.env\` can lead the agent to another gateway, with an authtoken of its own.

## Changes while the agent runs

A running agent reloads \`LOG_LEVEL\`, \`DEFAULT_POLICIES\`, \`AGENT_API_TOKEN\` and \`AGENT_API_TOKEN_FILE\` on SIGHUP. Other
changes need a restart. [.env.example](../.env.example) lists all settings to copy from.`;

/** .env.example: every setting as a comment, with its default or an example. */
export function envExample(): string {
  const groups = SETTING_GROUPS.map(({ title, usedBy, variables }) => {
    const heading = `# --- ${title} (${plain(usedBy)}) `.padEnd(100, '-');
    const settings = Object.entries(variables).map(([name, { meaning, default: value, otherwise, example }]) => {
      const unset = otherwise === undefined ? '' : ` Default: ${otherwise}.`;
      const comment = wrap(plain(`${meaning}.${unset}`), 98).map((line) => `# ${line}`);
      return [...comment, `#${name}=${value ?? example ?? ''}`].join('\n');
    });
    return [heading, ...settings].join('\n');
  });
  return `# Copy to .env (mode 0600) and change what you need. docs/settings.md describes the allowed values.\n\n${groups.join('\n\n')}\n`;
}

const plain = (markdown: string): string => markdown.replaceAll('`', '');
