import { type Command, Option } from 'commander';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { duration, examples } from '../command-line.ts';
import type { DestinationChoice } from './gateway-destinations.ts';
import type { RuleChoice } from './gateway-messages.ts';

type Settings = () => GatewayServerSettings;
const load = () => import('./gateway-messages.ts');
const loadDestinations = () => import('./gateway-destinations.ts');

/** Adds the commands about messages: where they go, by which rules, and what was wrong. */
export function addMessageCommands(gateway: Command, settings: Settings): void {
  addDestinationCommands(gateway, settings);
  addRuleCommands(gateway, settings);
  addConditionCommands(gateway, settings);
}

function addDestinationCommands(gateway: Command, settings: Settings): void {
  const destinations = gateway
    .command('destinations')
    .description('Add, test and remove where events and messages go, while the gateway runs');
  destinations
    .command('list', { isDefault: true })
    .description('List the destinations, without their secrets (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await loadDestinations()).listDestinations(settings(), options));
  examples(
    destinations.command('add'),
    'gateway destinations add email ops@example.com --smtp smtps://gateway@mail.example.com --secret-file password',
    'gateway destinations add ntfy https://ntfy.sh/my-topic --usual-rules',
    'gateway destinations add slack --secret-file webhook-url',
  )
    .description('Add a destination; secrets come from a file or standard input')
    .argument('<kind>', 'email, ntfy, slack, teams, discord, telegram, pagerduty or webhook')
    .argument('[to]', 'address of an email, URL of an ntfy topic or webhook, chat of Telegram')
    .option(
      '--secret-file <file>',
      'File with the password (email), token (ntfy, telegram), URL (slack, teams, discord) or key (pagerduty, webhook); -: standard input',
    )
    .option('--smtp <url>', 'For email: your SMTP server, such as smtps://user@mail.example.com')
    .option('--smtp-from <address>', 'Sender of the emails (default: the user of the SMTP server, or the recipient)')
    .addOption(new Option('--region <region>', 'For pagerduty: where the account is').choices(['us', 'eu']))
    .option('--usual-rules', 'Add the rules that suit most gateways, for this destination')
    .option('-d, --description <text>', 'What the destination is for')
    .option('--json', 'Print the destination as JSON')
    .action(async (kind: string, to: string | undefined, options: DestinationChoice) =>
      (await loadDestinations()).addDestination(settings(), kind, to, options),
    );
  destinations
    .command('remove')
    .description('Remove a destination that no rule names; what waits for it is not sent')
    .argument('<id>', 'id of the destination, ed_…, as listed')
    .option('--json', 'Print the result as JSON')
    .action(async (id: string, options: { json?: boolean }) =>
      (await loadDestinations()).removeDestination(settings(), id, options),
    );
  destinations
    .command('test')
    .description('Send a test message to a destination now, and say what it answered')
    .argument('<id>', 'id of the destination, ed_…, as listed')
    .option('--json', 'Print the result as JSON')
    .action(async (id: string, options: { json?: boolean }) =>
      (await loadDestinations()).testDestination(settings(), id, options),
    );
}

function addRuleCommands(gateway: Command, settings: Settings): void {
  const rules = gateway.command('rules').description('Decide who is notified of problems, while the gateway runs');
  rules
    .command('list', { isDefault: true })
    .description('List the rules (the default command)')
    .option('--json', 'Print JSON')
    .action(async (options: { json?: boolean }) => (await load()).listRules(settings(), options));
  rules
    .command('usual')
    .description('Add the rules that suit most gateways, for one destination')
    .argument('<destination>', 'id of the destination, ed_…, as "gateway destinations" lists it')
    .option('--json', 'Print the rules as JSON')
    .action(async (id: string, options: { json?: boolean }) => (await load()).addUsualRules(settings(), id, options));
  ruleOptions(
    examples(
      rules.command('add'),
      'gateway rules add --to ed_… --condition device_offline --site quarry.example.com --after 10m',
    ).description('Add a rule'),
  ).action(async (options: RuleChoice) => (await load()).addRule(settings(), options));
  ruleOptions(
    rules
      .command('set')
      .description('Change a rule; what is left out stays as it is')
      .argument('<id>', 'id of the rule, mr_…, as listed'),
  ).action(async (id: string, options: RuleChoice) => (await load()).setRule(settings(), id, options));
  rules
    .command('remove')
    .description('Remove a rule')
    .argument('<id>', 'id of the rule, mr_…, as listed')
    .action(async (id: string) => (await load()).removeRule(settings(), id));
}

function ruleOptions(command: Command): Command {
  return command
    .option('--condition <id>', 'What it is about, such as device_offline; can be repeated (default: everything)', many)
    .option('--site <domain>', 'Only of this site; can be repeated', many)
    .option('--label <name=value>', 'Only devices with this label; can be repeated', many)
    .option('--subject <text>', 'Only this endpoint, domain or device; * stands for any text; can be repeated', many)
    .option('--after <duration>', 'For how long it has to be so, such as 10m (default for a new rule: 5m)', duration)
    .option('--to <destination>', 'Id of a destination, ed_…; can be repeated', many)
    .option('--quiet <hours>', 'When no messages are sent, such as "22:00-07:00 Europe/Berlin"; "": never')
    .option('--quiet-critical', 'What is critical waits for the end of the quiet hours, too')
    .option('--no-quiet-critical', 'What is critical is sent in the quiet hours')
    .option('--remind <duration>', 'Send reminders while nobody has acknowledged, such as 4h; 0: none', reminder)
    .option('-d, --description <text>', 'What the rule is for')
    .option('--json', 'Print the rule as JSON');
}

function addConditionCommands(gateway: Command, settings: Settings): void {
  const conditions = gateway
    .command('conditions')
    .description('Show what was wrong, who was told and why not; acknowledge and silence, while the gateway runs');
  conditions
    .command('list', { isDefault: true })
    .description('List what is and was wrong, newest first (the default command)')
    .option('--open', 'Only what is wrong now')
    .option('--condition <id>', 'Only one condition, such as device_offline')
    .option('--site <domain>', 'Only of one site')
    .option('--json', 'Print JSON')
    .action(async (options) => (await load()).listConditions(settings(), options));
  const one = (name: string, description: string) =>
    conditions
      .command(name)
      .description(description)
      .argument('<id>', 'id of the condition, cnd_…, as listed')
      .option('--json', 'Print JSON');
  one('show', 'Show who was told of a condition, and why others were not').action(
    async (id: string, options: { json?: boolean }) => (await load()).showCondition(settings(), id, options),
  );
  one('acknowledge', 'Acknowledge a condition: no reminders come until it is over').action(
    async (id: string, options: { json?: boolean }) => (await load()).acknowledgeCondition(settings(), id, options),
  );
  one('silence', 'Send no messages about a condition for a time, also when it begins again')
    .requiredOption('-f, --for <duration>', 'For how long, such as 8h; 0: send messages again', reminder)
    .action(async (id: string, options: { for: number; json?: boolean }) =>
      (await load()).silenceCondition(settings(), id, options),
    );
}

export const many = (text: string, before: string[] = []): string[] => [...before, text];
const reminder = (text: string): number => (text === '0' ? 0 : duration(text));
