// The driver of kafkajs: `node driver.js COMMAND KEY=VALUE...`, see ../README.md.
"use strict";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

const [command, ...given] = process.argv.slice(2);
const spec = Object.fromEntries(given.map((each) => [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)]));
const number = (name) => Number(spec[name] || 0);

let isStopped = false;
const stopped = new Promise((resolve) => {
  const stop = () => {
    isStopped = true;
    resolve();
  };
  process.stdin.on("end", stop).on("close", stop).resume();
});

function tell(event) {
  process.stdout.write(JSON.stringify({ at: Date.now() / 1000, ...event }) + "\n");
}

function client() {
  return new Kafka({ brokers: spec.bootstrap.split(","), logLevel: logLevel.ERROR });
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function recordOf(sent) {
  const isMixed = number("mixed") === 1;
  const value = `${spec.producer} ${sent} `.padEnd(number("size"), ".");
  const key = `key ${number("keys") ? sent % number("keys") : sent}`;
  return {
    key: isMixed && sent % 3 === 0 ? null : key,
    value: isMixed && sent % 5 === 0 && sent % 3 !== 0 ? null : value,
    headers: isMixed && sent % 2 === 1 ? { first: "1", second: "2" } : {},
    timestamp: number("time_ms") ? String(number("time_ms") + sent) : undefined,
  };
}

// A send of this client is a request: the next one is made when it is answered, as its documentation has it.
async function produce() {
  const isIdempotent = number("idempotent") === 1;
  const producer = client().producer({ idempotent: isIdempotent, maxInFlightRequests: isIdempotent ? 1 : undefined });
  await producer.connect();
  const compression = spec.codec === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None;
  const count = number("count");
  for (let sent = 0; (count === 0 || sent < count) && !isStopped; sent++) {
    try {
      const messages = [recordOf(sent)];
      const answer = await producer.send({ topic: spec.topic, acks: number("acks"), compression, messages });
      tell({ acked: sent, offset: answer.length ? Number(answer[0].baseOffset) : -1 });
    } catch (problem) {
      tell({ failed: sent, error: String(problem) });
    }
    await pause(number("pace_ms"));
  }
  await producer.disconnect();
}

function tellRead(partition, message) {
  const text = (bytes) => (bytes === null ? null : bytes.toString().slice(0, 64));
  tell({
    read: Number(message.offset),
    partition,
    key: text(message.key),
    value: text(message.value),
    headers: Object.entries(message.headers || {}).map(([name, value]) => [name, String(value)]),
    time_ms: Number(message.timestamp),
    ...(message.value === null ? {} : { size: message.value.length }),
  });
}

function tellProblems(consumer) {
  consumer.on(consumer.events.CRASH, ({ payload }) => tell({ error: String(payload.error) }));
}

async function offsetAt(kafka, timeMs) {
  const admin = kafka.admin();
  await admin.connect();
  const offsets = await admin.fetchTopicOffsetsByTimestamp(spec.topic, timeMs);
  await admin.disconnect();
  return offsets.find((each) => each.partition === 0).offset;
}

// This client reads in a group or not at all: this one is of one member.
async function consume() {
  const [kind, place] = spec.from.split(":");
  const kafka = client();
  const consumer = kafka.consumer({ groupId: `reader-${process.pid}-${Date.now()}` });
  tellProblems(consumer);
  await consumer.connect();
  await consumer.subscribe({ topic: spec.topic, fromBeginning: kind !== "latest" });
  // It reads as soon as it runs, so its place is known before.
  const offset = kind === "time" ? await offsetAt(kafka, Number(place)) : place;
  let seen = 0;
  const count = number("count");
  let end;
  const ended = new Promise((resolve) => (end = resolve));
  const removeListener = consumer.on(consumer.events.FETCH, () => {
    tell({ ready: true });
    removeListener();
  });
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      if (partition !== 0 || (count !== 0 && seen >= count)) return;
      tellRead(partition, message);
      seen++;
      if (seen === count) end();
    },
  });
  if (offset !== undefined) consumer.seek({ topic: spec.topic, partition: 0, offset });
  await Promise.race([ended, stopped]);
  await consumer.disconnect();
}

async function member() {
  const sessionTimeout = number("session_ms");
  const heartbeatInterval = Math.min(3000, sessionTimeout / 3);
  const consumer = client().consumer({ groupId: spec.group, sessionTimeout, heartbeatInterval });
  tellProblems(consumer);
  consumer.on(consumer.events.REBALANCING, () => tell({ assigned: [] }));
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    tell({ assigned: (payload.memberAssignment[spec.topic] || []).sort((a, b) => a - b) }),
  );
  await consumer.connect();
  await consumer.subscribe({ topic: spec.topic, fromBeginning: true });
  consumer.on(consumer.events.COMMIT_OFFSETS, ({ payload }) => {
    for (const { partitions } of payload.topics) {
      for (const { partition, offset } of partitions) tell({ committed: Number(offset), partition });
    }
  });
  await consumer.run({
    eachBatch: async ({ batch }) => {
      for (const message of batch.messages) tellRead(batch.partition, message);
    },
  });
  await stopped;
  await consumer.disconnect();
}

async function withAdmin(work) {
  const admin = client().admin();
  await admin.connect();
  await work(admin);
  await admin.disconnect();
}

function topics() {
  return withAdmin(async (admin) => tell({ topics: (await admin.listTopics()).length }));
}

function admin() {
  return withAdmin(async (admin) => {
    const made = `${spec.topic}-made`;
    const tellStep = (step, found = null) => tell({ step, found });
    const tellPartitions = async () => {
      const described = await admin.fetchTopicMetadata({ topics: [made] });
      tellStep("partitions", described.topics[0].partitions.length);
    };
    const resource = { type: ConfigResourceTypes.TOPIC, name: made };
    const tellConfig = async () => {
      const described = await admin.describeConfigs({ resources: [{ ...resource, configNames: ["retention.ms"] }] });
      tellStep("config", described.resources[0].configEntries[0].configValue);
    };
    const tellListed = async () => {
      tellStep("groups", (await admin.listGroups()).groups.some((group) => group.groupId === spec.group));
    };
    const configEntries = [{ name: "retention.ms", value: "86400000" }];
    await admin.createTopics({ topics: [{ topic: made, numPartitions: 2, configEntries }] });
    tellStep("create");
    await tellPartitions();
    await admin.createPartitions({ topicPartitions: [{ topic: made, count: 4 }] });
    tellStep("create partitions");
    await tellPartitions();
    await tellConfig();
    const changed = [{ name: "retention.ms", value: "172800000" }];
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: changed }] });
    tellStep("alter config");
    await tellConfig();
    tellStep("list", (await admin.listTopics()).includes(made));
    await admin.deleteTopicRecords({ topic: spec.topic, partitions: [{ partition: 0, offset: "5" }] });
    tellStep("delete records", 5);
    await tellListed();
    tellStep("group", (await admin.describeGroups([spec.group])).groups[0].state.toLowerCase());
    const offsets = await admin.fetchOffsets({ groupId: spec.group, topics: [spec.topic] });
    tellStep("offset", Number(offsets[0].partitions[0].offset));
    await admin.deleteGroups([spec.group]);
    tellStep("delete group");
    await tellListed();
    await admin.deleteTopics({ topics: [made] });
    tellStep("delete");
  });
}

async function about() {
  tell({ versions: { kafkajs: require("kafkajs/package.json").version } });
}

({ about, produce, consume, member, topics, admin })
  [command]()
  .catch((problem) => tell({ error: String(problem) }))
  .finally(() => {
    tell({ done: true });
    process.stdin.destroy();
  });
