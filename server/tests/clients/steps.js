// The steps of a client: each is run and counted. A failed one is told, and those after it are run as well.
let passed = 0;
let refused = 0;
let count = 0;

exports.step = async (name, body) => {
  count += 1;
  try {
    await body();
    passed += 1;
  } catch (error) {
    console.log(`    FAILED ${name}: ${error.message}${error.query || error.sql ? `\n      ${error.query || error.sql}` : ''}`);
  }
};

// A step that the server is known to refuse, by the name of what it has not. It does not count as passed.
exports.refused = async (name, what, body) => {
  count += 1;
  try {
    await body();
    console.log(`    FAILED ${name}: is no longer refused`);
  } catch (error) {
    if (error.message.includes(what)) refused += 1;
    else console.log(`    FAILED ${name}: ${error.message}`);
  }
};

exports.ended = (client) => {
  console.log(`  ${client}: ${passed} of ${count} steps, ${refused} refused by name`);
  process.exit(passed + refused === count ? 0 : 1);
};
